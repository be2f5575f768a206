//! A curve as an SVG.

use plotters::prelude::*;

use crate::curve::Drawn;
use crate::rules::RULES;

/// Draws percent found against the size of the fault, in powers of ten.
pub fn write(drawn: &Drawn, path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (760, 380)).into_drawing_area();
    root.fill(&WHITE)?;
    let sizes = || drawn.points.iter().map(|(size, _)| *size).filter(|size| *size > 0.0);
    let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .caption(drawn.curve.about, ("sans-serif", 15))
        .build_cartesian_2d((least..most).log_scale(), 0.0..101.0)?;
    chart.configure_mesh().x_desc("x").y_desc("found in one case, %").light_line_style(WHITE).draw()?;
    for (i, rule) in RULES.iter().enumerate() {
        let color = Palette99::pick(i).stroke_width(if i == 0 { 4 } else { 2 });
        let points =
            drawn.points.iter().filter(|(size, _)| *size > 0.0).map(|(size, found)| (*size, found[i]));
        chart
            .draw_series(LineSeries::new(points, color))?
            .label(*rule)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color));
    }
    chart.configure_series_labels().border_style(BLACK.mix(0.3)).background_style(WHITE).draw()?;
    root.present()?;
    Ok(())
}

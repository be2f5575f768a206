//! One piece of memory for everything that the kernels touch: filled on the host, copied to the GPU,
//! run over, copied back.
//!
//! Every tensor, list and workspace lies between gaps that hold NaN. What the kernels may not write (the
//! gaps, the inputs, the lists) must come back as it was; what they read beside a tensor is NaN.
//!
//! ```text
//! | EDGE | q_offset | GAP | ... | q | GAP | k | GAP | ... | dv | GAP | delta | GAP | dq_acc | EDGE |
//! ```

use std::ops::Range;

use crate::backend::launch::WorkLists;
use crate::backend::params::{Params, RowRange, TensorParam, Tile};
use crate::case::Case;
use crate::inputs::Inputs;
use crate::outputs::{Output, Outputs};
use crate::tensor::{DType, Poison, Tensor};

/// Alignment of every part, in bytes: that of the driver's own allocations.
const ALIGN: usize = 256;
/// Least distance of two parts, in bytes, besides a row of the widest tensor: a row that is one too many
/// does not reach the next part.
const GAP: usize = 4096;
/// Beyond the first and the last part, in bytes: a tile that overshoots the last tensor ends here.
const EDGE: usize = 64 << 10;

/// A piece of memory and what lies where in it.
pub struct Image {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    /// Every address relative to the image's first byte.
    params: Params,
    poison: Poison,
    /// Distance of two parts.
    gap: usize,
}

struct Part {
    name: &'static str,
    range: Range<usize>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Tensors of the case and work lists.
    ReadOnly,
    /// Of one output, by [`Output::ALL`].
    Output(Output),
    Workspace,
}

impl Image {
    /// Of a call, before it runs.
    pub fn new(inputs: &Inputs, lists: &WorkLists, poison: Poison) -> Image {
        let case = &inputs.case;
        let row = case.heads.q as usize * case.dims.qk.max(case.dims.v) as usize * size_of::<f32>();
        let (bytes, parts, gap) = (Vec::new(), Vec::new(), GAP + row);
        let mut image = Image { bytes, parts, params: Params::of(case), poison, gap };
        image.gap(EDGE);
        image.lists(lists);
        image.params.q = image.read_only("q", &inputs.q);
        image.params.k = image.read_only("k", &inputs.k);
        image.params.v = image.read_only("v", &inputs.v);
        image.params.d_o = image.read_only("dO", &inputs.dout);
        image.params.o = image.output(case, Output::O);
        image.params.lse = image.output(case, Output::Lse);
        image.params.dq = image.output(case, Output::Dq);
        image.params.dk = image.output(case, Output::Dk);
        image.params.dv = image.output(case, Output::Dv);
        image.params.delta = image.workspace(case, "delta", 1);
        image.params.dq_acc = image.workspace(case, "dq_acc", case.dims.qk as usize);
        image.gap(EDGE);
        image
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The launch parameters, of an image whose first byte is at `base`.
    pub fn params_at(&self, base: u64) -> Params {
        self.params.moved(base)
    }

    /// What the kernels made of it. Memory beside an output that was written is a broken guard of it.
    ///
    /// # Errors
    /// A sentence, where memory was written that is neither an output nor beside one.
    pub fn outputs(&self, case: &Case, after: &[u8]) -> Result<Outputs, String> {
        let mut outputs = Outputs::poisoned(case, self.poison);
        for part in &self.parts {
            if let Kind::Output(output) = part.kind {
                let bytes = &after[part.range.clone()];
                let tensor = Tensor::from_bytes(output.dtype(case), output.shape(case), self.poison, bytes);
                *outputs.get_mut(output) = tensor.expect("as many bytes as the shape says");
            }
        }
        for part in self.parts.iter().filter(|part| part.kind == Kind::ReadOnly) {
            if let Some(at) = self.first_change(after, part.range.clone()) {
                return Err(format!("{}, which is read only, was written at byte {at}", part.name));
            }
        }
        for (at, before, behind) in self.gaps() {
            let Some(first) = self.first_change(after, at.clone()) else { continue };
            if !self.broken(&mut outputs, at.start + first, [before, behind]) {
                let beside = before.or(behind).map_or("everything", |part| part.name);
                return Err(format!("memory beside {beside} was written, which belongs to no tensor"));
            }
        }
        Ok(outputs)
    }

    /// Marks the guard of the nearer part beside byte `at`; `false` where that is no output.
    fn broken(&self, outputs: &mut Outputs, at: usize, beside: [Option<&Part>; 2]) -> bool {
        let distance = |part: &&Part| part.range.start.abs_diff(at).min(part.range.end.abs_diff(at));
        let Some(part) = beside.into_iter().flatten().min_by_key(distance) else { return false };
        let Kind::Output(output) = part.kind else { return false };
        let tensor = outputs.get_mut(output);
        let (width, len) = (if tensor.dtype() == DType::F32 { 4 } else { 2 }, tensor.len() as isize);
        let element = (at as isize - part.range.start as isize).div_euclid(width);
        // A guard of the host's is narrower than a gap: its nearest element stands for what is beyond.
        let guard = tensor.guards()[0].1 as isize / width;
        tensor.break_guard(element.clamp(-guard, len + guard - 1))
    }

    /// Index inside `range` of the first byte that is not as it was.
    fn first_change(&self, after: &[u8], range: Range<usize>) -> Option<usize> {
        let (before, after) = (&self.bytes[range.clone()], &after[range]);
        // Compared as a whole first: as a rule they are equal.
        if before == after { None } else { before.iter().zip(after).position(|(a, b)| a != b) }
    }

    /// Between the parts, and beyond them, with the parts on either side.
    fn gaps(&self) -> Vec<(Range<usize>, Option<&Part>, Option<&Part>)> {
        let mut gaps = Vec::with_capacity(self.parts.len() + 1);
        let (mut from, mut before) = (0, None);
        for part in &self.parts {
            gaps.push((from..part.range.start, before, Some(part)));
            (from, before) = (part.range.end, Some(part));
        }
        gaps.push((from..self.bytes.len(), before, None));
        gaps
    }

    fn lists(&mut self, lists: &WorkLists) {
        self.params.q_offset = self.list("q_offset", lists.q_offset.iter().map(|x| x.to_le_bytes()));
        self.params.kv_offset = self.list("kv_offset", lists.kv_offset.iter().map(|x| x.to_le_bytes()));
        self.params.q_len = self.list("q_len", lists.q_len.iter().map(|x| x.to_le_bytes()));
        self.params.kv_len = self.list("kv_len", lists.kv_len.iter().map(|x| x.to_le_bytes()));
        self.params.q_tiles = self.list("q_tiles", lists.q_tiles.iter().map(tile_bytes));
        self.params.kv_tiles = self.list("kv_tiles", lists.kv_tiles.iter().map(tile_bytes));
        self.params.q_dead = self.list("q_dead", lists.q_dead.iter().map(range_bytes));
        self.params.kv_dead = self.list("kv_dead", lists.kv_dead.iter().map(range_bytes));
        self.params.q_dead_count = lists.q_dead.len() as i32;
        self.params.kv_dead_count = lists.kv_dead.len() as i32;
    }

    fn list<const N: usize>(&mut self, name: &'static str, items: impl Iterator<Item = [u8; N]>) -> u64 {
        let bytes: Vec<u8> = items.flatten().collect();
        self.part(name, Kind::ReadOnly, &bytes)
    }

    fn read_only(&mut self, name: &'static str, tensor: &Tensor) -> TensorParam {
        let data = self.part(name, Kind::ReadOnly, &tensor.to_bytes());
        TensorParam::packed(data, tensor.heads, tensor.dim)
    }

    fn output(&mut self, case: &Case, output: Output) -> TensorParam {
        let [rows, heads, dim] = output.shape(case);
        let data = self.poisoned(output.name(), Kind::Output(output), output.dtype(case), rows * heads * dim);
        TensorParam::packed(data, heads, dim)
    }

    fn workspace(&mut self, case: &Case, name: &'static str, dim: usize) -> TensorParam {
        let (rows, heads) = (case.q.rows() as usize, case.heads.q as usize);
        let data = self.poisoned(name, Kind::Workspace, DType::F32, rows * heads * dim);
        TensorParam::packed(data, heads, dim)
    }

    fn poisoned(&mut self, name: &'static str, kind: Kind, dtype: DType, elements: usize) -> u64 {
        let halves = if dtype == DType::F32 { 2 * elements } else { elements };
        let pattern = self.poison.pattern(dtype).to_le_bytes();
        self.part(name, kind, &pattern.repeat(halves))
    }

    fn part(&mut self, name: &'static str, kind: Kind, bytes: &[u8]) -> u64 {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.parts.push(Part { name, range: start..self.bytes.len(), kind });
        self.gap(self.gap);
        start as u64
    }

    /// The pattern of bf16 is a NaN in the other dtypes, too.
    fn gap(&mut self, least: usize) {
        let pattern = Poison::Nan.pattern(DType::Bf16).to_le_bytes();
        let end = (self.bytes.len() + least).next_multiple_of(ALIGN);
        while self.bytes.len() < end {
            // By its address, so that what a byte holds does not depend on what lies before.
            self.bytes.push(pattern[self.bytes.len() % 2]);
        }
    }
}

fn tile_bytes(tile: &Tile) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&tile.sequence.to_le_bytes());
    bytes[4..].copy_from_slice(&tile.index.to_le_bytes());
    bytes
}

fn range_bytes(range: &RowRange) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&range.first.to_le_bytes());
    bytes[8..].copy_from_slice(&range.count.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Image, Case) {
        let case: Case = text.parse().unwrap();
        (Image::new(&Inputs::new(&case), &WorkLists::new(&case), Poison::Nan), case)
    }

    fn part<'a>(image: &'a Image, name: &str) -> &'a Part {
        image.parts.iter().find(|part| part.name == name).unwrap()
    }

    #[test]
    fn parts_are_aligned_and_apart_and_the_parameters_point_at_them() {
        let (image, _) = of("[65,0,3] h4/2 d40/24 f16 gap-q(1,0,70)");
        for pair in image.parts.windows(2) {
            assert!(pair[1].range.start >= pair[0].range.end + GAP, "{} {}", pair[0].name, pair[1].name);
        }
        assert!(image.parts.iter().all(|part| part.range.start.is_multiple_of(ALIGN)));
        let params = image.params_at(1 << 40);
        let at = |name: &str| (1 << 40) + part(&image, name).range.start as u64;
        assert_eq!([params.q_tiles, params.kv_len], [at("q_tiles"), at("kv_len")]);
        let expected = TensorParam { data: at("dQ"), row_stride: 160, head_stride: 40 };
        assert_eq!(params.dq, expected);
        assert_eq!(params.lse, TensorParam { data: at("LSE"), row_stride: 4, head_stride: 1 });
        assert_eq!(params.dq_acc.data, at("dq_acc"));
    }

    #[test]
    fn what_nobody_touched_comes_back_as_poison_between_whole_guards() {
        let (image, case) = of("[5] h2 d8 tail-q=3");
        let outputs = image.outputs(&case, image.bytes()).unwrap();
        assert!(!outputs.any_broken_guard());
        for output in Output::ALL {
            let tensor = outputs.get(output);
            assert!((0..tensor.len()).all(|i| tensor.is_poison(i)), "{output}");
        }
    }

    #[test]
    fn a_store_anywhere_is_seen() {
        let (image, case) = of("[5] h2 d8 tail-q=3");
        let stored = |at: usize| {
            let mut after = image.bytes().to_vec();
            after[at] ^= 1;
            image.outputs(&case, &after)
        };
        let (q, lse, dv) = (part(&image, "q"), part(&image, "LSE"), part(&image, "dV"));
        let text = stored(q.range.start + 7).unwrap_err();
        assert_eq!(text, "q, which is read only, was written at byte 7");
        let outputs = stored(lse.range.start + 4).unwrap();
        assert!(!outputs.lse.is_poison(1) && outputs.lse.is_poison(0) && !outputs.any_broken_guard());
        assert_eq!(stored(lse.range.start - 1).unwrap().lse.broken_guard(), Some(-1));
        let elements = (dv.range.len() / 2) as isize;
        assert_eq!(stored(dv.range.end).unwrap().dv.broken_guard(), Some(elements));
        assert_eq!(stored(dv.range.end + 2048).unwrap().dv.broken_guard(), Some(elements + 511));
        let text = stored(part(&image, "delta").range.end).unwrap_err();
        assert_eq!(text, "memory beside delta was written, which belongs to no tensor");
        assert!(stored(0).is_err() && stored(image.bytes().len() - 1).is_err());
        // The workspaces are the kernels' own.
        assert!(stored(part(&image, "dq_acc").range.start).is_ok());
    }
}

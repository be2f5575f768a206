//! What is launched for a case, with which work lists: the same for the emulator and for a GPU.
//!
//! `kernels/README.md` has the table that [`launches`] follows.

use super::Support;
use super::params::{RowRange, Tile};
use crate::case::{Case, Side, Sink, Span};
use crate::tensor::DType;

/// Rows of a tile, on either side.
pub const TILE: usize = 64;
/// Threads of every block.
pub const THREADS: u32 = 128;
/// Head dims that the kernels are compiled for.
pub const HEAD_DIMS: [u32; 4] = [32, 64, 96, 128];
/// A CUDA grid's limit in y, which counts heads.
const MAX_GRID_Y: u32 = 65_535;
/// Dead rows that one block clears.
const ROWS_A_BLOCK: usize = 64;

/// Can the project's kernel take this case?
pub fn supports(case: &Case) -> Support {
    let dim = case.dims.qk.max(case.dims.v);
    if head_dim(case).is_none() {
        return Support::No(format!("head dim {dim}: the kernel is compiled for up to 128"));
    }
    if case.softcap.is_some() {
        return Support::No("softcap: not in the kernels yet".into());
    }
    if case.sink != Sink::None {
        return Support::No(format!("sink={}: not in the kernels yet", case.sink.name()));
    }
    if case.heads.q > MAX_GRID_Y {
        return Support::No(format!("{} heads: a grid holds {MAX_GRID_Y}", case.heads.q));
    }
    Support::Yes
}

/// The compiled head dim that a case runs in.
pub fn head_dim(case: &Case) -> Option<u32> {
    let dim = case.dims.qk.max(case.dims.v);
    HEAD_DIMS.into_iter().find(|&compiled| compiled >= dim)
}

/// The lists that the kernels find their work in.
#[derive(Clone, Debug, Default)]
pub struct WorkLists {
    /// Storage row of each sequence's first token.
    pub q_offset: Vec<i64>,
    /// Likewise of the keys.
    pub kv_offset: Vec<i64>,
    /// Lengths.
    pub q_len: Vec<i32>,
    /// Lengths of the keys.
    pub kv_len: Vec<i32>,
    /// Every tile of queries.
    pub q_tiles: Vec<Tile>,
    /// Every tile of keys.
    pub kv_tiles: Vec<Tile>,
    /// Dead rows of the q side.
    pub q_dead: Vec<RowRange>,
    /// Dead rows of the kv side.
    pub kv_dead: Vec<RowRange>,
}

impl WorkLists {
    /// Of a case.
    pub fn new(case: &Case) -> WorkLists {
        let (q, kv) = (case.q.spans(), case.kv.spans());
        WorkLists {
            q_offset: offsets(&q),
            kv_offset: offsets(&kv),
            q_len: lengths(&q),
            kv_len: lengths(&kv),
            q_tiles: tiles(&q),
            kv_tiles: tiles(&kv),
            q_dead: dead_ranges(&case.q),
            kv_dead: dead_ranges(&case.kv),
        }
    }
}

fn offsets(spans: &[Span]) -> Vec<i64> {
    spans.iter().map(|span| span.row as i64).collect()
}

fn lengths(spans: &[Span]) -> Vec<i32> {
    spans.iter().map(|span| span.len as i32).collect()
}

/// Long sequences first, so that no block starts late with much to do.
fn tiles(spans: &[Span]) -> Vec<Tile> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(spans[i].len));
    let of = |i: usize| (0..spans[i].len.div_ceil(TILE)).map(move |index| (i, index));
    let tile = |(i, index): (usize, usize)| Tile { sequence: i as i32, index: index as i32 };
    order.into_iter().flat_map(of).map(tile).collect()
}

/// Runs of dead rows, cut so that blocks share the work.
fn dead_ranges(side: &Side) -> Vec<RowRange> {
    let rows = side.dead_rows();
    let runs = rows.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(ROWS_A_BLOCK));
    runs.map(|run| RowRange { first: run[0] as i64, count: run.len() as i64 }).collect()
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Entry point.
    pub kernel: String,
    /// Blocks in x and y.
    pub grid: [u32; 2],
    /// Dynamic shared memory, in bytes.
    pub shared_bytes: u32,
}

/// The launches of forward and backward, in order; those of nothing are left out. `case` is one
/// that [`supports`] accepts.
pub fn launches(case: &Case, lists: &WorkLists) -> Vec<Launch> {
    let (dtype, dim) = (case.dtype, head_dim(case).unwrap_or(HEAD_DIMS[HEAD_DIMS.len() - 1]));
    debug_assert_ne!(dtype, DType::F32, "storage dtypes have two bytes");
    let t = dtype.name();
    let (q, kv) = (lists.q_tiles.len() as u32, lists.kv_tiles.len() as u32);
    let (q_dead, kv_dead) = (lists.q_dead.len() as u32, lists.kv_dead.len() as u32);
    let launch =
        |kernel: String, x: u32, y: u32, shared_bytes: u32| Launch { kernel, grid: [x, y], shared_bytes };
    let all = [
        launch(format!("thd_forward_{t}_d{dim}"), q, case.heads.q, 384 * dim),
        launch("thd_clear_forward".into(), q_dead, 1, 0),
        launch(format!("thd_backward_delta_{t}"), q, case.heads.q, 0),
        launch(format!("thd_backward_{t}_d{dim}"), kv, case.heads.kv, 640 * dim + 17_408),
        launch(format!("thd_backward_convert_{t}"), q, case.heads.q, 0),
        launch("thd_clear_backward".into(), q_dead.max(kv_dead), 1, 0),
    ];
    all.into_iter().filter(|launch| launch.grid[0] > 0 && launch.grid[1] > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_every_tile_and_every_dead_row_once() {
        let case: Case = "[65,0,128]x[1,64,2] gap-q(100,0,1) lead-q=2 tail-kv=65".parse().unwrap();
        let lists = WorkLists::new(&case);
        let tile = |sequence, index| Tile { sequence, index };
        assert_eq!(lists.q_tiles, [tile(2, 0), tile(2, 1), tile(0, 0), tile(0, 1)]);
        assert_eq!(lists.kv_tiles, [tile(1, 0), tile(2, 0), tile(0, 0)]);
        let range = |first, count| RowRange { first, count };
        assert_eq!(lists.q_dead, [range(0, 2), range(67, 64), range(131, 36), range(295, 1)]);
        assert_eq!(lists.kv_dead, [range(67, 64), range(131, 1)]);
    }

    #[test]
    fn a_case_runs_in_the_smallest_head_dim_that_holds_both() {
        let names = |text: &str| -> Vec<String> {
            let case: Case = text.parse().unwrap();
            launches(&case, &WorkLists::new(&case)).into_iter().map(|launch| launch.kernel).collect()
        };
        assert_eq!(names("[1] f16 d8/72")[0], "thd_forward_f16_d96");
        assert_eq!(names("[]"), [""; 0]);
        assert_eq!(names("[1]x[0]").len(), 3, "forward, delta and convert: no key, no dead row");
        assert!(matches!(supports(&"[1] d136".parse().unwrap()), Support::No(_)));
        assert_eq!(supports(&"[1] d128".parse().unwrap()), Support::Yes);
    }
}

//! What the host hands to the kernels: the mirror of `kernels/params.h`.
//!
//! A test pins sizes and offsets; the C++ side asserts its own, and refuses a launch whose
//! parameters have another size.

use crate::case::{Align, Case};

/// An address in the memory that the kernel runs in: the host's for the emulator, else the
/// device's. 0: not used.
pub type Address = u64;

/// A tensor `[rows][heads][columns]`; strides in elements, columns contiguous.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TensorParam {
    /// First element.
    pub data: Address,
    /// From one row to the next.
    pub row_stride: i64,
    /// From one head to the next.
    pub head_stride: i64,
}

impl TensorParam {
    /// Of a tensor whose rows follow each other without gaps.
    pub fn packed(data: Address, heads: usize, columns: usize) -> TensorParam {
        TensorParam { data, row_stride: (heads * columns) as i64, head_stride: columns as i64 }
    }
}

/// One unit of work: tile `index` of sequence `sequence`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tile {
    /// The sequence.
    pub sequence: i32,
    /// Which of its tiles.
    pub index: i32,
}

/// Storage rows that belong to no sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowRange {
    /// The first.
    pub first: i64,
    /// How many.
    pub count: i64,
}

/// A window bound that never bites.
pub const UNBOUNDED: i32 = i32::MAX;

/// Everything, for every kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // the members of kernels/params.h, explained there
pub struct Params {
    pub q_offset: Address,
    pub kv_offset: Address,
    pub q_len: Address,
    pub kv_len: Address,
    pub q_tiles: Address,
    pub kv_tiles: Address,
    pub q_dead: Address,
    pub kv_dead: Address,
    pub q: TensorParam,
    pub k: TensorParam,
    pub v: TensorParam,
    pub o: TensorParam,
    pub lse: TensorParam,
    pub d_o: TensorParam,
    pub delta: TensorParam,
    pub dq_acc: TensorParam,
    pub dq: TensorParam,
    pub dk: TensorParam,
    pub dv: TensorParam,
    pub heads_q: i32,
    pub heads_kv: i32,
    pub d_qk: i32,
    pub d_v: i32,
    pub q_dead_count: i32,
    pub kv_dead_count: i32,
    pub window_left: i32,
    pub window_right: i32,
    pub bottom_right: i32,
    pub scale: f32,
}

impl Params {
    /// Heads, dims, mask and scale of a case; all addresses 0.
    pub fn of(case: &Case) -> Params {
        let (left, right, align) = case.mask.window();
        // Window bounds are at most MAX_TOKENS by the notation's limits, far from UNBOUNDED.
        let bound = |b: Option<i64>| b.map_or(UNBOUNDED, |b| b.clamp(-(1 << 30), 1 << 30) as i32);
        Params {
            heads_q: case.heads.q as i32,
            heads_kv: case.heads.kv as i32,
            d_qk: case.dims.qk as i32,
            d_v: case.dims.v as i32,
            window_left: bound(left),
            window_right: bound(right),
            bottom_right: i32::from(align == Align::BottomRight),
            scale: case.softmax_scale() as f32,
            ..Params::default()
        }
    }

    /// With every address moved by `base`: from an offset in a piece of memory to where that lies.
    #[must_use]
    pub fn moved(mut self, base: Address) -> Params {
        let lists = [
            &mut self.q_offset,
            &mut self.kv_offset,
            &mut self.q_len,
            &mut self.kv_len,
            &mut self.q_tiles,
            &mut self.kv_tiles,
            &mut self.q_dead,
            &mut self.kv_dead,
        ];
        lists.into_iter().for_each(|address| *address += base);
        let tensors = [
            &mut self.q,
            &mut self.k,
            &mut self.v,
            &mut self.o,
            &mut self.lse,
            &mut self.d_o,
            &mut self.delta,
            &mut self.dq_acc,
            &mut self.dq,
            &mut self.dk,
            &mut self.dv,
        ];
        tensors.into_iter().for_each(|tensor| tensor.data += base);
        self
    }

    /// The bytes that a launch takes.
    pub fn as_bytes(&self) -> &[u8] {
        let bytes = std::mem::size_of::<Params>();
        // SAFETY: Params is repr(C) of integers and floats without padding (a test pins that), so
        // all of its bytes are initialised; the slice lives no longer than self.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), bytes) }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn the_layout_is_that_of_params_h() {
        assert_eq!([size_of::<TensorParam>(), size_of::<Tile>(), size_of::<RowRange>()], [24, 8, 16]);
        assert_eq!(size_of::<Params>(), 8 * 8 + 11 * 24 + 10 * 4, "no hidden padding");
        assert_eq!(offset_of!(Params, q), 64);
        assert_eq!(offset_of!(Params, dv), 304);
        assert_eq!(offset_of!(Params, heads_q), 328);
        assert_eq!(offset_of!(Params, scale), 364);
    }

    #[test]
    fn members_stand_in_the_order_of_params_h() {
        // Names of the C++ struct, in order, found in the text that the kernels are compiled from.
        let text = include_str!("../../kernels/params.h");
        let body = &text[text.find("struct Params {").expect("the struct")..];
        let body = &body[..body.find("};").expect("its end")];
        let members = "q_offset kv_offset q_len kv_len q_tiles kv_tiles q_dead kv_dead q, k, v; o; lse; d_o; \
                       delta; dq_acc; dq, dk, dv; heads_q heads_kv d_qk d_v q_dead_count kv_dead_count \
                       window_left window_right bottom_right scale";
        let mut at = 0;
        for member in members.split_whitespace() {
            let found = body[at..].find(member).unwrap_or_else(|| panic!("{member} after byte {at}"));
            at += found;
        }
    }
}

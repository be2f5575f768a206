//! What a case asks for, as JSON: a worker in another language needs no parser of the notation.

use serde::Serialize;

use crate::case::{Align, Case, Side, Sink};
use crate::tensor::DType;

/// A case, resolved: offsets are counted, defaults are filled in.
#[derive(Debug, Serialize)]
pub struct Plan {
    dtype: &'static str,
    heads_q: u32,
    heads_kv: u32,
    d_qk: u32,
    d_v: u32,
    /// The softmax scale.
    scale: f64,
    /// The cap of the logits.
    softcap: Option<f64>,
    sink: &'static str,
    mask: Window,
    q: Rows,
    kv: Rows,
}

/// Query `i` of a sequence sees key `j` where `-left <= j - i - shift <= right`: `shift` is 0, or
/// the keys less the queries.
#[derive(Debug, Serialize)]
struct Window {
    left: Option<i64>,
    right: Option<i64>,
    bottom_right: bool,
}

/// Where the sequences of one side lie in storage.
#[derive(Debug, Serialize)]
struct Rows {
    /// Rows in all, dead ones included.
    rows: u64,
    /// Length of each sequence.
    lengths: Vec<u32>,
    /// Storage row that each sequence begins at.
    starts: Vec<usize>,
    /// Prefix sums of the lengths, one more than there are sequences.
    cu_seqlens: Vec<u64>,
}

impl Rows {
    fn of(side: &Side) -> Rows {
        let mut cu_seqlens = vec![0];
        for &length in &side.lengths {
            cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + u64::from(length));
        }
        let starts = side.spans().iter().map(|span| span.row).collect();
        Rows { rows: side.rows(), lengths: side.lengths.clone(), starts, cu_seqlens }
    }
}

impl Plan {
    /// Of a case.
    pub fn of(case: &Case) -> Plan {
        let (left, right, align) = case.mask.window();
        Plan {
            dtype: match case.dtype {
                DType::Bf16 => "bf16",
                DType::F16 => "f16",
                DType::F32 => "f32",
            },
            heads_q: case.heads.q,
            heads_kv: case.heads.kv,
            d_qk: case.dims.qk,
            d_v: case.dims.v,
            scale: case.softmax_scale(),
            softcap: case.softcap,
            sink: match case.sink {
                Sink::None => "none",
                Sink::OffByOne => "off-by-one",
                Sink::Learnable => "learnable",
            },
            mask: Window { left, right, bottom_right: align == Align::BottomRight },
            q: Rows::of(&case.q),
            kv: Rows::of(&case.kv),
        }
    }

    /// As text.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names have a JSON form")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_storage_and_of_tokens() {
        let case: Case = "[5,0,7]x[3,4,9] h4/2 d40/8 f16 causal-br gap-q(1,0,2) lead-kv=3".parse().unwrap();
        let json: serde_json::Value = serde_json::from_str(&Plan::of(&case).json()).unwrap();
        assert_eq!(json["q"]["cu_seqlens"], serde_json::json!([0, 5, 5, 12]));
        assert_eq!(json["q"]["starts"], serde_json::json!([0, 6, 6]));
        assert_eq!(json["q"]["rows"], 15);
        assert_eq!(json["kv"]["starts"], serde_json::json!([3, 6, 10]));
        let mask = serde_json::json!({"left": null, "right": 0, "bottom_right": true});
        assert_eq!((&json["mask"], &json["dtype"]), (&mask, &"f16".into()));
    }
}

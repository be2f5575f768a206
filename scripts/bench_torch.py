"""The peer of `thd-fuzz bench`: PyTorch's FlashAttention-2 on the same shapes, timed in the same way.

    python3 scripts/bench_torch.py --lengths 128 --heads 8 --dim 128 --causal
    python3 scripts/bench_torch.py --lengths 4096,4096,4096,4096 --heads 16 --dim 128 --causal

Each pass between two events, the same inputs again and again; prints one line of JSON, in microseconds.
"""

import argparse
import json
import statistics

import torch

WARM_UP = 5


def quantiles(times):
    times = sorted(times)
    at = lambda share: times[round(share * (len(times) - 1))]
    return {"median": statistics.median(times), "p10": at(0.1), "p90": at(0.9)}


def timed(call, repeats):
    times = []
    for repeat in range(WARM_UP + repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if repeat >= WARM_UP:
            times.append(1000 * start.elapsed_time(end))
    return quantiles(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", required=True, help="sequence lengths, with commas between")
    parser.add_argument("--heads", type=int, required=True)
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--dtype", choices=["bf16", "f16"], default="bf16")
    parser.add_argument("--repeats", type=int, default=50)
    args = parser.parse_args()

    lengths = [int(n) for n in args.lengths.split(",")]
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[args.dtype]
    torch.manual_seed(0)
    shape = (sum(lengths), args.heads, args.dim)
    q, k, v, dout = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(4))
    starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    cu_seqlens = torch.tensor(starts, device="cuda", dtype=torch.int32)
    longest, scale = max(lengths), args.dim**-0.5

    def forward():
        return torch.ops.aten._flash_attention_forward(
            q, k, v, cu_seqlens, cu_seqlens, longest, longest, 0.0, args.causal, False, scale=scale
        )

    out, lse, rng, unused, _ = forward()

    def backward():
        return torch.ops.aten._flash_attention_backward(
            dout, q, k, v, out, lse, cu_seqlens, cu_seqlens, longest, longest, 0.0, args.causal, rng, unused, scale=scale
        )

    print(json.dumps({
        "type": "bench",
        "backend": "torch:flash",
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "lengths": lengths,
        "heads": args.heads,
        "dim": args.dim,
        "causal": args.causal,
        "unit": "us",
        "forward": timed(forward, args.repeats),
        "backward": timed(backward, args.repeats),
    }))


if __name__ == "__main__":
    main()

"""A second implementation of the data recipe and of attention, which the Rust reference is held to.

    pip install torch numpy
    python tests/data/torch_reference.py        # rewrites torch_reference.json beside this file

Nothing here is translated from the Rust sources: the notation is read by a parser of its own, q, k, v
and dO are rebuilt in numpy from the recipe as docs/notation.md words it, and the gradients are
torch.float64 autograd's. tests/torch_reference.rs reads the output; it needs neither torch nor numpy.

Per case and output the JSON has, over the live elements in (token, head, column) order: how many there
are, their sum and sum of squares, and some of them by index (all where they are few). `size` is the
largest sum of absolute terms in the element's row: what rounding errors are proportional to.
"""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

CASES = """
[128] h8 d128 causal do=ones
[128,96] h8 d128 causal do=ones
[]
[5]
[1]x[3] h2 seed=18446744073709551615
[7,3] h4/2 causal
[6,4]x[9,2] h2/1 causal-br seed=3
[9,5]x[4,8] h2 causal-br
[9]x[4] d16 causal
[12,7]x[10,15] d32/16 window(3,1)
[40]x[33] h3/1 d16/24 window-br(5,2) seed=9
[10]x[12] d8 window(-2,4)
[11,6]x[7,9] d16 window-br(3,-1)
[9] h2 d8 window(*,-2)
[8]x[20] d40 window(2,*)
[8]x[5] window-br(-1,*)
[200]x[300] h2/1 d16 window(90,40)
[4,0,3,0]x[0,5,2,0] h2/1
[16] d24/40 scale=0.3
[13,2] h2 causal scale=-0.2
[6] scale=0 do=scale(0.5)
[17]x[23] data=offset(-110)
[6,9] d128/64 scale=-0.05 data=logits(4)+offset(30)+head-scale(3)
[9,4] h4 data=head-scale(8)
[20] causal data=logits(30)
[10,6]x[6,10] causal data=ones
[8,8] h2 d16 causal data=dyadic
[12] d16 data=dyadic do=ones+scale(-3)
[12,5] do=row(4)
[24,10] h2 d32 f16 causal data=logits(4)
[30]x[28] h8/4 f16 data=head-scale(2) do=scale(0.000001)
[7] d8 f16 do=scale(40000)
[5,3] gap-q(2,0) gap-kv(0,3) lead-q=4 lead-kv=1 tail-q=2 tail-kv=5 dead=nan
[3,2]x[2,3] f16 gap-kv(1,0) tail-q=3 dead=big
[4,6] h4/2 keys=7,2 head-keys=5,1 seed=77
"""

FEW, SAMPLE, SAMPLE_LARGE = 20, 12, 24
OUTPUTS = ["O", "LSE", "dQ", "dK", "dV"]


def numbers(text):
    """`2,600*8`."""
    runs = [(run.split("*") + ["1"])[:2] for run in text.split(",")] if text else []
    return [int(value) for value, count in runs for _ in range(int(count))]


def terms(text):
    """`logits(4)+ones` as {name: argument or None}. No term of CASES holds a '+' of its own."""
    found = (re.fullmatch(r"([a-z-]+)(?:\((.*)\))?", term) for term in text.split("+"))
    return {match[1]: match[2] for match in found}


def parse(text):
    """The case of one line; every item that CASES uses."""
    lengths, *items = text.split()
    q, _, kv = lengths.partition("x")
    case = SimpleNamespace(text=text, heads=(1, 1), dims=(64, 64), dtype="bf16", mask=(None, None, False))
    case.scale, case.data, case.dout, case.dead, case.seed = None, {}, {}, 0.0, 0
    case.head_keys = None
    case.lengths = {"q": numbers(q[1:-1]), "kv": numbers((kv or q)[1:-1])}
    case.keys = list(range(len(case.lengths["q"])))
    case.gaps = {side: [0] * len(case.keys) for side in ("q", "kv")}
    case.lead, case.tail = {"q": 0, "kv": 0}, {"q": 0, "kv": 0}
    for item in items:
        if found := re.fullmatch(r"([hd])(\d+)(?:/(\d+))?", item):
            pair = (int(found[2]), int(found[3] or found[2]))
            case.heads, case.dims = (pair, case.dims) if found[1] == "h" else (case.heads, pair)
        elif item == "f16":
            case.dtype = item
        elif found := re.fullmatch(r"causal(-br)?", item):
            case.mask = (None, 0, bool(found[1]))
        elif found := re.fullmatch(r"window(-br)?\((.*),(.*)\)", item):
            case.mask = (*(None if b == "*" else int(b) for b in found.group(2, 3)), bool(found[1]))
        elif found := re.fullmatch(r"gap-(q|kv)\((.*)\)", item):
            case.gaps[found[1]] = numbers(found[2])
        elif found := re.fullmatch(r"(lead|tail)-(q|kv)=(\d+)", item):
            getattr(case, found[1])[found[2]] = int(found[3])
        else:
            name, value = item.split("=")
            read = {
                "scale": ("scale", float), "data": ("data", terms), "do": ("dout", terms), "seed": ("seed", int),
                "dead": ("dead", {"big": 16384.0, "nan": np.nan}.get),
                "keys": ("keys", numbers), "head-keys": ("head_keys", numbers),
            }
            field, reader = read[name]
            setattr(case, field, reader(value))
    case.head_keys = case.head_keys or list(range(case.heads[1]))
    case.c = 1.0 / np.sqrt(float(case.dims[0])) if case.scale is None else case.scale
    return case


# The recipe.

Q, K, V, DOUT, ROW_GAIN, HEAD_GAIN, HEAD_SCALE = map(np.uint64, range(7))


def mix(x):
    """splitmix64: the increment and its finaliser, mod 2^64."""
    with np.errstate(over="ignore"):
        z = np.asarray(x, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def chain(seed, *parts):
    """The hash of a tuple; parts broadcast."""
    h = mix(np.uint64(seed))
    for part in parts:
        h = mix(h ^ np.asarray(part, np.uint64))
    return h


def normal(h):
    quarters = sum(((h >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.float64) for i in range(4))
    return (quarters - 131070.0) / 37837.0


def unit(h):
    return (h >> np.uint64(11)).astype(np.float64) * 2.0**-53


def gain(h):
    return 0.5 + 1.5 * unit(h)


def halves(h):
    return (h % np.uint64(5)).astype(np.float64) * 0.5 - 1.0


def rounded(x, dtype):
    """To the dtype: clamped to its finite range, to nearest, ties to even, subnormals kept."""
    precision, smallest, largest = {
        "bf16": (8, -126, (2.0 - 2.0**-7) * 2.0**127),
        "f16": (11, -14, 65504.0),
    }[dtype]
    x = np.clip(x, -largest, largest)
    exponent = np.frexp(x)[1] - 1  # |x| is in 2^exponent * [1, 2)
    step = np.ldexp(1.0, np.maximum(exponent, smallest) - (precision - 1))
    return np.rint(x / step) * step  # both exact but for rint, which is to nearest even


def base(case, stream, key, rows, heads, dim, factor):
    """[rows][heads][dim] of the base recipe, `factor` on near-normal values only."""
    h = mix(chain(case.seed, stream, key, rows, heads)[..., None] ^ np.arange(dim, dtype=np.uint64))
    if "ones" in case.data:
        return np.ones(h.shape)
    return halves(h) if "dyadic" in case.data else normal(h) * factor


def sequence(case, key, m, n):
    """q, k, v, dO of one sequence before rounding, `[rows][heads][columns]`."""
    (query_heads, kv_heads), (d, e), c = case.heads, case.dims, case.c
    group = query_heads // kv_heads
    kv_keys = np.array(case.head_keys, np.uint64)[None, :]
    places = np.arange(query_heads)
    q_keys = ((kv_keys[0, places // group] << np.uint64(32)) | (places % group).astype(np.uint64))[None, :]
    q_rows, kv_rows = (np.arange(count, dtype=np.uint64)[:, None] for count in (m, n))

    natural = "ones" not in case.data and "dyadic" not in case.data
    spread = float(case.data.get("logits", 1.0))
    sigma = np.sqrt(spread / (abs(c) * np.sqrt(float(d)))) if natural and c != 0 else 1.0
    factor = sigma * gain(chain(case.seed, ROW_GAIN, key, q_rows, q_keys))
    factor = factor * gain(chain(case.seed, HEAD_GAIN, 0, 0, q_keys))
    q = base(case, Q, key, q_rows, q_keys, d, factor[..., None])
    reach = float(case.data.get("head-scale", 1.0))
    if reach != 1.0:
        low = 1.0 / reach
        q = q * (low + (reach - low) * unit(chain(case.seed, HEAD_SCALE, 0, 0, q_keys)))[..., None]
    k = base(case, K, key, kv_rows, kv_keys, d, sigma)
    v = base(case, V, key, kv_rows, kv_keys, e, 1.0)
    offset = float(case.data.get("offset", 0.0))
    if offset != 0 and c != 0:
        q[..., 0] = np.sqrt(abs(offset / c))
        k[..., 0] = offset / c / np.sqrt(abs(offset / c))

    if "ones" in case.dout:
        dout = np.ones((m, query_heads, e))
    else:
        h = mix(chain(case.seed, DOUT, key, q_rows, q_keys)[..., None] ^ np.arange(e, dtype=np.uint64))
        dout = halves(h) if "dyadic" in case.data else normal(h)
    dout = dout * float(case.dout.get("scale", 1.0))
    if "row" in case.dout:
        dout[np.arange(m) != int(case.dout["row"])] = 0.0
    return [rounded(x, case.dtype) for x in (q, k, v, dout)]


def checksum(case, side, parts):
    """Of a whole tensor in storage: sum of (2i + 1) * (high 32 bits of element i as f64), mod 2^64."""
    columns = parts[0].shape[1:] if parts else (0, 0)
    dead = lambda rows: np.full((rows, *columns), case.dead)
    pieces = [dead(case.lead[side])]
    for part, gap in zip(parts, case.gaps[side]):
        pieces += [part, dead(gap)]
    flat = np.concatenate(pieces + [dead(case.tail[side])]).ravel()
    bits = flat.view(np.uint64) >> np.uint64(32)  # the low ones of a 16-bit value are zero
    bits[np.isnan(flat)] = 0x7FF80000
    with np.errstate(over="ignore"):
        return f"{np.sum(bits * (2 * np.arange(flat.size, dtype=np.uint64) + 1), dtype=np.uint64):016x}"


# Attention.


def visible(mask, m, n):
    """[m][n]: i - left <= j <= i + right, i moved by n - m where the mask is aligned to the bottom right."""
    left, right, bottom_right = mask
    i = torch.arange(m)[:, None] + (n - m if bottom_right else 0)
    j = torch.arange(n)[None, :]
    see = torch.ones(m, n, dtype=torch.bool)
    if left is not None:
        see &= i - left <= j
    if right is not None:
        see &= j <= i + right
    return see


def attend(case, q, k, v, dout):
    """The five outputs of one sequence and their sizes, `[rows][heads][columns]`."""
    group = case.heads[0] // case.heads[1]
    q, k, v, dout = (torch.tensor(x, dtype=torch.float64) for x in (q, k, v, dout))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    see = visible(case.mask, len(q), len(k))
    rows = see.any(1)  # only rows that see a key take part; the others keep their zeros
    wide_k, wide_v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    s = case.c * torch.einsum("ihd,jhd->hij", q[rows], wide_k)
    s = s.masked_fill(~see[rows], -torch.inf)
    o = torch.zeros_like(dout)
    lse = torch.full((len(q), case.heads[0], 1), -torch.inf, dtype=torch.float64)
    if rows.any():
        p = torch.softmax(s, -1)
        o = o.index_put((rows,), torch.einsum("hij,jhe->ihe", p, wide_v))
        lse[rows] = torch.logsumexp(s, -1).T[..., None].detach()
        (o * dout).sum().backward()
    values = [o, lse, *(x.grad if x.grad is not None else torch.zeros_like(x) for x in leaves)]
    with torch.no_grad():
        sizes = [torch.zeros_like(x) for x in values]
        if rows.any():
            sizes = absolute_terms(case, rows, p, s, *(x.abs() for x in (q, wide_k, wide_v, dout)))
    return [x.detach().numpy() for x in values], [x.numpy() for x in sizes]


def absolute_terms(case, rows, p, s, q, k, v, dout):
    """Per element of each output, the sum of the absolute values of what is summed in it."""
    kv_heads, c = case.heads[1], abs(case.c)
    per_kv_head = lambda x: x.reshape(len(x), kv_heads, -1, x.shape[-1]).sum(2)
    whole = lambda x: torch.zeros(len(rows), *x.shape[1:], dtype=torch.float64).index_put((rows,), x)
    dp = torch.einsum("ihe,jhe->hij", dout[rows], v)
    ds = c * p * (dp + (p * dp).sum(-1, keepdim=True))
    logits = (c * torch.einsum("ihd,jhd->hij", q[rows], k)).masked_fill(s == -torch.inf, 0.0)
    return [
        whole(torch.einsum("hij,jhe->ihe", p, v)),
        whole(1.0 + logits.amax(-1).T[..., None]),
        whole(torch.einsum("hij,jhd->ihd", ds, k)),
        per_kv_head(torch.einsum("hij,ihd->jhd", ds, q[rows])),
        per_kv_head(torch.einsum("hij,ihe->jhe", p, dout[rows])),
    ]


# What is stored.


def sample(count, at_most):
    """`at_most` indices below `count`, always the same."""
    if count <= FEW:
        return np.arange(count)
    drawn = mix(np.arange(4 * at_most, dtype=np.uint64)) % np.uint64(count)
    return np.array(sorted(list(dict.fromkeys(drawn.tolist()))[:at_most]))


def summary(value, size, at_most):
    """Statistics and samples of one output over all sequences; `[tokens][heads][columns]` both."""
    size = np.broadcast_to(size.max(-1, keepdims=True, initial=0.0), value.shape).ravel()
    value = value.ravel()
    at = sample(value.size, at_most)
    live = np.where(np.isfinite(value), value, 0.0)  # -inf of an LSE: null below, nothing in the sums
    return {
        "count": value.size,
        "sum": math.fsum(live),
        "squares": math.fsum(live * live),
        "size": float(f"{size.sum():.3g}"),
        "squared_size": float(f"{(size * size).sum():.3g}"),
        "at": at.tolist(),
        "value": [float(x) if np.isfinite(x) else None for x in value[at]],
        "sizes": [float(f"{x:.3g}") for x in size[at]],
    }


def entry(text):
    case = parse(text)
    lengths = list(zip(case.lengths["q"], case.lengths["kv"]))
    inputs = [sequence(case, np.uint64(key), m, n) for key, (m, n) in zip(case.keys, lengths)]
    sides = {"q": "q", "k": "kv", "v": "kv", "dO": "q"}
    sums = {
        name: checksum(case, side, [parts[i] for parts in inputs]) for i, (name, side) in enumerate(sides.items())
    }
    solved = [attend(case, *parts) for parts in inputs]
    outputs = {}
    at_most = SAMPLE_LARGE if sum(case.lengths["q"]) > 100 else SAMPLE
    for i, name in enumerate(OUTPUTS):
        joined = [np.concatenate([parts[of][i] for parts in solved] or [np.zeros((0, 1, 1))]) for of in (0, 1)]
        outputs[name] = summary(*joined, at_most)
    return {"case": text, "inputs": sums, "outputs": outputs}


def main():
    entries = [json.dumps(entry(line), separators=(",", ":")) for line in CASES.split("\n") if line]
    made = f'"made_by":"torch {torch.__version__.split("+")[0]}, numpy {np.__version__}"'
    text = "{" + made + ',\n"cases":[\n' + ",\n".join(entries) + "\n]}\n"
    Path(__file__).with_suffix(".json").write_text(text)


if __name__ == "__main__":
    main()

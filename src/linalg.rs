//! Matrix products over row-major slices: shape-checked doors onto the `matrixmultiply` crate.

/// `c = a b` or `c += a b`, with `a` `[m][k]`, `b` `[k][n]`, `c` `[m][n]`.
pub fn nn(m: usize, k: usize, n: usize, a: &[f64], b: &[f64], c: &mut [f64], add: bool) {
    product([m, k, n], (a, k, 1), (b, n, 1), c, add);
}

/// `c = a b^T`, with `a` `[m][k]`, `b` `[n][k]`, `c` `[m][n]`.
pub fn nt(m: usize, k: usize, n: usize, a: &[f64], b: &[f64], c: &mut [f64]) {
    product([m, k, n], (a, k, 1), (b, 1, k), c, false);
}

/// `c += a^T b`, with `a` `[k][m]`, `b` `[k][n]`, `c` `[m][n]`.
pub fn tn_add(m: usize, k: usize, n: usize, a: &[f64], b: &[f64], c: &mut [f64]) {
    product([m, k, n], (a, 1, m), (b, n, 1), c, true);
}

type Strided<'a, T> = (&'a [T], usize, usize);

fn product([m, k, n]: [usize; 3], a: Strided<f64>, b: Strided<f64>, c: &mut [f64], add: bool) {
    assert!(a.0.len() >= m * k && b.0.len() >= k * n && c.len() >= m * n, "matrix shapes");
    let beta = f64::from(u8::from(add));
    // SAFETY: the three slices hold m*k, k*n and m*n elements, the strides address no more, and c
    // is borrowed mutably, so it overlaps neither.
    unsafe {
        matrixmultiply::dgemm(
            m,
            k,
            n,
            1.0,
            a.0.as_ptr(),
            a.1 as isize,
            a.2 as isize,
            b.0.as_ptr(),
            b.1 as isize,
            b.2 as isize,
            beta,
            c.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}

/// `c += a b` in f32, with `a` `[m][k]`, `b` `[k][n]`, `c` `[m][n]`.
pub fn nn_add_f32(m: usize, k: usize, n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    sgemm_add([m, k, n], (a, k, 1), (b, n, 1), c);
}

/// `c += a^T b` in f32, with `a` `[k][m]`, `b` `[k][n]`, `c` `[m][n]`.
pub fn tn_add_f32(m: usize, k: usize, n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    sgemm_add([m, k, n], (a, 1, m), (b, n, 1), c);
}

/// The f32 products of a fused kernel: `c += a b` with any strides, `(row, column)` each.
pub fn sgemm_add(
    [m, k, n]: [usize; 3],
    (a, a_row, a_column): Strided<f32>,
    (b, b_row, b_column): Strided<f32>,
    c: &mut [f32],
) {
    let last = |rows: usize, columns: usize, row: usize, column: usize| {
        if rows * columns == 0 { 0 } else { (rows - 1) * row + (columns - 1) * column + 1 }
    };
    assert!(a.len() >= last(m, k, a_row, a_column), "a's shape");
    assert!(b.len() >= last(k, n, b_row, b_column), "b's shape");
    assert!(c.len() >= m * n, "c's shape");
    // SAFETY: the last element that each pair of strides addresses is inside its slice, and c is
    // borrowed mutably, so it overlaps neither.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.as_ptr(),
            a_row as isize,
            a_column as isize,
            b.as_ptr(),
            b_row as isize,
            b_column as isize,
            1.0,
            c.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}

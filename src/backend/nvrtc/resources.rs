//! What a kernel takes of a multiprocessor, as ptxas tells it.

/// Of one entry point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resources {
    /// The entry point.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Bytes that are stored because registers were short.
    pub spill_stores: u32,
    /// Bytes that are loaded again.
    pub spill_loads: u32,
    /// Bytes of shared memory that are not asked for at the launch.
    pub shared: u32,
}

/// Of every entry point that a log tells of; the log is that of `--ptxas-options=-v`.
pub fn resources(log: &str) -> Vec<Resources> {
    let mut all: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_string();
            let [registers, stack, spill_stores, spill_loads, shared] = [0; 5];
            all.push(Resources { kernel, registers, stack, spill_stores, spill_loads, shared });
        }
        let Some(last) = all.last_mut() else { continue };
        if let Some(n) = before(line, " bytes stack frame") {
            last.stack = n;
            last.spill_stores = before(line, " bytes spill stores").unwrap_or_default();
            last.spill_loads = before(line, " bytes spill loads").unwrap_or_default();
        }
        if let Some(n) = before(line, " registers") {
            last.registers = n;
            last.shared = before(line, " bytes smem").unwrap_or_default();
        }
    }
    all.sort();
    all
}

/// The number that stands before `text`.
fn before(line: &str, text: &str) -> Option<u32> {
    let (head, _) = line.split_once(text)?;
    head.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_ptxas_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'thd_b' for 'sm_90'\n\
                   ptxas info    : Function properties for thd_b\n    \
                   40 bytes stack frame, 36 bytes spill stores, 44 bytes spill loads\n\
                   ptxas info    : Used 255 registers, used 1 barriers, 40 bytes cumulative stack size, 128 bytes smem\n\
                   ptxas info    : Compile time = 0.000 ms\n\
                   ptxas info    : Compiling entry function 'thd_a' for 'sm_90'\n\
                   ptxas info    : Function properties for thd_a\n    \
                   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : Used 26 registers, used 0 barriers\n";
        let of = |kernel: &str, [registers, stack, spill_stores, spill_loads, shared]: [u32; 5]| Resources {
            kernel: kernel.into(),
            registers,
            stack,
            spill_stores,
            spill_loads,
            shared,
        };
        let expected = [of("thd_a", [26, 0, 0, 0, 0]), of("thd_b", [255, 40, 36, 44, 128])];
        assert_eq!(resources(log), expected, "sorted by name");
        assert_eq!(resources(""), []);
    }
}

//! The last lines that a child printed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// Bytes that are kept, at least; twice as many at most.
const KEPT: usize = 4096;
/// Lines that are told.
const LINES: usize = 6;
/// Most bytes that one look takes: a child that prints without end must not hold the watchdog.
const A_LOOK: usize = 1 << 20;

/// A child's standard output and error.
#[derive(Debug)]
pub struct Tail {
    /// `None` from its end on.
    source: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl Tail {
    /// Of a pipe that does not block.
    pub fn new(source: OwnedFd) -> Tail {
        Tail { source: Some(source), bytes: Vec::new() }
    }

    /// Forgets what was printed so far.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// What to wait for.
    pub fn source(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    /// Takes what is there.
    pub fn read(&mut self) {
        let mut buffer = [0; 4096];
        let mut taken = 0;
        while let Some(source) = &self.source {
            match rustix::io::read(source, &mut buffer[..]) {
                Ok(0) => self.source = None,
                Ok(n) => {
                    self.keep(&buffer[..n]);
                    taken += n;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.source = None,
            }
            if taken >= A_LOOK {
                return;
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > 2 * KEPT {
            self.bytes.drain(..self.bytes.len() - KEPT);
        }
    }

    /// The last lines, as they came: a stranger's text, to be escaped where it is shown.
    pub fn lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes[self.bytes.len().saturating_sub(KEPT)..]);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_bounded() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&read, true).unwrap();
        let mut tail = Tail::new(read);
        for i in 0..3000 {
            rustix::io::write(&write, format!("line {i}\n\n").as_bytes()).unwrap();
            tail.read();
        }
        assert!(tail.bytes.len() <= 2 * KEPT && tail.source().is_some());
        assert_eq!(tail.lines().lines().next(), Some("line 2994"));
        drop(write);
        tail.read();
        assert!(tail.source().is_none() && tail.lines().ends_with("line 2999"));
    }
}

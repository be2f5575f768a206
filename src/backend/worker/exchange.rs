//! The parts of one exchange with a child: messages out, a message in, the watchdog.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::backend::protocol::ProtocolError;

/// How often processor time is looked at.
const TICK: Duration = Duration::from_millis(100);
/// Bytes of the size before a message.
const SIZE: usize = 8;

/// How long a child may take: of processor time, which does not depend on what else the machine does,
/// and of time on the wall, for a child that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Of processor time, all threads of the child together.
    pub cpu: Duration,
    /// On the wall.
    pub wall: Duration,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Lost {
    /// The child closed its answers: it has ended, or is about to.
    Ended,
    /// The time is over.
    Late {
        /// On the wall.
        wall: Duration,
        /// Of processor time.
        cpu: Duration,
    },
    /// It said something that is no answer.
    Nonsense(ProtocolError),
}

/// Messages on their way out.
pub struct Sending<'a> {
    messages: &'a [Vec<u8>],
    /// Bytes of the first message that are sent, its size counted.
    sent: usize,
}

impl<'a> Sending<'a> {
    /// All of them to be sent.
    pub fn new(messages: &'a [Vec<u8>]) -> Self {
        Sending { messages, sent: 0 }
    }

    /// Is there nothing left to send?
    pub fn is_done(&self) -> bool {
        self.messages.is_empty()
    }

    /// Sends what the pipe takes. A child that reads no more may still have answered: whether it did,
    /// reading tells.
    pub fn write(&mut self, to: &OwnedFd) {
        while let Some(message) = self.messages.first() {
            let size = (message.len() as u64).to_le_bytes();
            let rest = size.get(self.sent..).filter(|rest| !rest.is_empty());
            let rest = rest.unwrap_or_else(|| &message[self.sent - SIZE..]);
            match rustix::io::write(to, rest) {
                Ok(n) => self.sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.messages = &[],
            }
            if self.sent == SIZE + message.len() {
                (self.messages, self.sent) = (&self.messages[1..], 0);
            }
        }
    }
}

/// A message on its way in.
pub struct Reading {
    limit: u64,
    /// First the size, then what it counts.
    bytes: Vec<u8>,
    size: Option<usize>,
}

impl Reading {
    /// A message of at most `limit` bytes.
    pub fn new(limit: u64) -> Reading {
        Reading { limit, bytes: Vec::with_capacity(SIZE), size: None }
    }

    /// The message, once it is whole.
    pub fn done(&mut self) -> Option<Vec<u8>> {
        (self.size == Some(self.bytes.len())).then(|| std::mem::take(&mut self.bytes))
    }

    /// Takes what the pipe has, and nothing beyond the message.
    ///
    /// # Errors
    /// The end of the pipe, or a size beyond the limit.
    pub fn read(&mut self, from: &OwnedFd) -> Result<(), Lost> {
        while self.size != Some(self.bytes.len()) {
            match rustix::io::read(from, spare_capacity(&mut self.bytes)) {
                Ok(0) => return Err(Lost::Ended),
                Ok(_) => self.take_size()?,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(Lost::Nonsense(ProtocolError::Io(error.into()))),
            }
        }
        Ok(())
    }

    fn take_size(&mut self) -> Result<(), Lost> {
        let (None, Ok(size)) = (self.size, self.bytes[..].try_into()) else { return Ok(()) };
        let bytes = u64::from_le_bytes(size);
        if bytes > self.limit {
            return Err(Lost::Nonsense(ProtocolError::TooLong { bytes, limit: self.limit }));
        }
        // A capacity of exactly what is left: a read cannot take more.
        (self.bytes, self.size) = (exactly(bytes as usize), Some(bytes as usize));
        Ok(())
    }
}

/// A buffer whose spare capacity is `bytes`, no more.
fn exactly(bytes: usize) -> Vec<u8> {
    let buffer = Vec::with_capacity(bytes);
    assert_eq!(buffer.capacity(), bytes, "a vector of bytes has the capacity that it was asked for");
    buffer
}

/// The watchdog.
pub struct Watch {
    deadline: Deadline,
    pid: u32,
    start: Instant,
    next: Instant,
    /// Processor time at the first look.
    before: Option<Duration>,
}

impl Watch {
    /// On a process, from now on.
    pub fn new(deadline: Deadline, pid: u32) -> Watch {
        let start = Instant::now();
        Watch { deadline, pid, start, next: start + TICK, before: None }
    }

    /// How long to wait at most until it must look again.
    pub fn next_look(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Is there time left?
    ///
    /// # Errors
    /// [`Lost::Late`].
    pub fn look(&mut self) -> Result<(), Lost> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + TICK.min(self.deadline.wall.saturating_sub(now - self.start)).max(TICK / 100);
        // A process whose time cannot be read has the wall's.
        let cpu = processor_time(self.pid).unwrap_or_default();
        let cpu = cpu.saturating_sub(*self.before.get_or_insert(cpu));
        let wall = self.start.elapsed();
        if wall >= self.deadline.wall || cpu >= self.deadline.cpu {
            return Err(Lost::Late { wall, cpu });
        }
        Ok(())
    }
}

/// Of all threads of a process, in its own code and in the kernel's.
fn processor_time(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the last parenthesis may hold anything; then come state, ..., utime, stime.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let ticks = ticks()? + ticks()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_this_process_goes_on() {
        let pid = std::process::id();
        let before = processor_time(pid).unwrap();
        let start = Instant::now();
        while processor_time(pid).unwrap() < before + Duration::from_millis(30) {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(processor_time(0), None);
    }
}

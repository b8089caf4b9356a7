//! Reading a clock *as a process reads it*: the process itself is made to call its vDSO, under ptrace.
//!
//! Tracing is done by a short-lived child of ours: were we the tracer ourselves, our own `waitpid` on
//! a node or worker that we started would report its stops as if it had exited. The child of
//! a process with threads may call only async-signal-safe functions: plain system calls here, no allocation.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::image::Image;
use crate::receipt::Reason;

pub const REALTIME: i32 = libc::CLOCK_REALTIME;
pub const MONOTONIC: i32 = libc::CLOCK_MONOTONIC;

/// What the child answers: an error step (0: none), errno, and the readings in nanoseconds.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Answer {
    step: i32,
    errno: i32,
    nanos: [i64; 2],
}

const STEPS: [&str; 6] = ["", "attach", "stop", "map a page", "read a clock", "let go"];

/// Both clocks of a process, in nanoseconds: (wall, monotonic).
///
/// Its first thread is stopped for about a millisecond and runs `clock_gettime` of its own vDSO on a
/// page that is mapped for it and unmapped again. Blocks for up to a few seconds.
///
/// # Errors
/// When the process is gone or stopped, or we may not trace it.
pub fn clocks(pid: i32) -> Result<(i64, i64), Reason> {
    let image = Image::of(pid)?;
    let gettime = image
        .symbol("__vdso_clock_gettime")
        .map(|at| image.base + at as u64);
    let (Some(gettime), Some(syscall)) = (gettime, image.syscall()) else {
        return Err(Reason(format!(
            "the vDSO of process {pid} has no clock_gettime"
        )));
    };
    let answer = in_child(|| trace::read(pid, gettime, syscall))?;
    match answer.step {
        0 => Ok((answer.nanos[0], answer.nanos[1])),
        step => {
            let what = STEPS.get(step as usize).unwrap_or(&"trace");
            let e = std::io::Error::from_raw_os_error(answer.errno);
            Err(Reason(format!(
                "cannot read the clock of process {pid}: {what}: {e}"
            )))
        }
    }
}

fn in_child(work: impl FnOnce() -> Answer) -> Result<Answer, Reason> {
    let mut fds = [0; 2];
    // SAFETY: plain system calls; the descriptors are ours from here on.
    let (read, write) = unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    };
    // SAFETY: the child makes plain system calls only, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = work();
        // SAFETY: `Answer` is plain data, written whole (less than PIPE_BUF).
        unsafe {
            libc::write(
                write.as_raw_fd(),
                (&raw const answer).cast(),
                size_of::<Answer>(),
            );
            libc::_exit(0);
        }
    }
    if child < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    drop(write);
    let mut bytes = [0; size_of::<Answer>()];
    let got = File::from(read).read_exact(&mut bytes);
    // SAFETY: our own child, waited for once.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    got.map_err(|_| Reason::new("the tracing child died"))?;
    // SAFETY: any bytes are an `Answer`.
    Ok(unsafe { std::mem::transmute::<[u8; size_of::<Answer>()], Answer>(bytes) })
}

#[cfg(not(target_arch = "x86_64"))]
mod trace {
    pub fn read(_pid: i32, _gettime: u64, _syscall: u64) -> super::Answer {
        super::Answer {
            step: 1,
            errno: libc::ENOSYS,
            ..Default::default()
        }
    }
}

/// Runs in the child: no allocation, no panic, bounded in time.
#[cfg(target_arch = "x86_64")]
mod trace {
    use super::{Answer, MONOTONIC, REALTIME};
    use libc::{c_int, c_long, c_void, user_regs_struct};

    /// Where the called function "returns" to: never mapped, never run.
    const RETURN: u64 = 0x10;
    const MAX_STEPS: u32 = 20_000;
    const MAX_WAITS: u32 = 20_000;
    const MAX_SIGNALS: usize = 16;

    struct Traced {
        pid: c_int,
        saved: user_regs_struct,
        syscall: u64,
        /// Signals that came meanwhile, to be sent again.
        signals: [c_int; MAX_SIGNALS],
        n: usize,
    }

    /// SAFETY of every call: arguments are valid for the request named.
    fn ptrace(request: u32, pid: c_int, addr: u64, data: *mut c_void) -> Result<c_long, c_int> {
        let rc = unsafe { libc::ptrace(request, pid, addr as *mut c_void, data) };
        if rc == -1 && request != libc::PTRACE_PEEKDATA {
            Err(errno())
        } else {
            Ok(rc)
        }
    }

    fn errno() -> c_int {
        // SAFETY: always valid.
        unsafe { *libc::__errno_location() }
    }

    /// Waits at most a few seconds for the next stop; its signal, or 0 for the stop that we asked for.
    fn stopped(pid: c_int) -> Result<c_int, c_int> {
        for i in 0..MAX_WAITS {
            let mut status = 0;
            // SAFETY: plain system calls.
            let rc = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) };
            if rc == pid {
                if !libc::WIFSTOPPED(status) {
                    return Err(libc::ESRCH);
                }
                let event = status >> 16 == libc::PTRACE_EVENT_STOP;
                return Ok(if event { 0 } else { libc::WSTOPSIG(status) });
            }
            if rc < 0 {
                return Err(errno());
            }
            let nap = libc::timespec {
                tv_sec: 0,
                tv_nsec: if i < 1000 { 0 } else { 200_000 },
            };
            // SAFETY: as above. The first rounds only yield: a single step takes microseconds.
            unsafe {
                if nap.tv_nsec == 0 {
                    libc::sched_yield();
                } else {
                    libc::nanosleep(&raw const nap, std::ptr::null_mut());
                }
            }
        }
        Err(libc::ETIMEDOUT)
    }

    pub fn read(pid: c_int, gettime: u64, syscall: u64) -> Answer {
        let mut answer = Answer::default();
        let fail = |step, errno| Answer {
            step,
            errno,
            ..Answer::default()
        };
        if let Err(e) = ptrace(libc::PTRACE_SEIZE, pid, 0, std::ptr::null_mut()) {
            return fail(1, e);
        }
        let interrupted = ptrace(libc::PTRACE_INTERRUPT, pid, 0, std::ptr::null_mut());
        let mut traced = match interrupted.and_then(|_| Traced::at_stop(pid, syscall)) {
            Ok(t) => t,
            Err(e) => return fail(2, e),
        };
        match traced.system(
            libc::SYS_mmap as u64,
            [
                0,
                4096,
                (libc::PROT_READ | libc::PROT_WRITE) as u64,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64,
                u64::MAX,
                0,
            ],
        ) {
            Ok(page) if page < u64::MAX - 4096 => {
                for (slot, clock) in [REALTIME, MONOTONIC].into_iter().enumerate() {
                    match traced.clock(gettime, clock, page) {
                        Ok(t) => answer.nanos[slot] = t,
                        Err(e) => answer = fail(4, e),
                    }
                }
                if let Err(e) = traced.system(libc::SYS_munmap as u64, [page, 4096, 0, 0, 0, 0]) {
                    answer = fail(5, e);
                }
            }
            Ok(_) => answer = fail(3, libc::ENOMEM),
            Err(e) => answer = fail(3, e),
        }
        if let Err(e) = traced.let_go() {
            answer = fail(5, e);
        }
        answer
    }

    impl Traced {
        fn at_stop(pid: c_int, syscall: u64) -> Result<Traced, c_int> {
            // SAFETY: plain data.
            let saved = unsafe { std::mem::zeroed() };
            let mut t = Traced {
                pid,
                saved,
                syscall,
                signals: [0; MAX_SIGNALS],
                n: 0,
            };
            // A signal may be reported first: it is kept, and the stop that we asked for comes next.
            loop {
                match stopped(pid)? {
                    0 => break,
                    s => {
                        t.keep(s);
                        ptrace(libc::PTRACE_CONT, pid, 0, std::ptr::null_mut())?;
                    }
                }
            }
            ptrace(libc::PTRACE_GETREGS, pid, 0, (&raw mut t.saved).cast())?;
            Ok(t)
        }

        fn keep(&mut self, signal: c_int) {
            if self.n < MAX_SIGNALS {
                self.signals[self.n] = signal;
                self.n += 1;
            }
        }

        /// Runs single steps from `regs` until `done` says so; the registers then.
        fn run(
            &mut self,
            mut regs: user_regs_struct,
            done: impl Fn(&user_regs_struct) -> bool,
        ) -> Result<user_regs_struct, c_int> {
            // A system call that was interrupted must not be restarted from our registers.
            regs.orig_rax = u64::MAX;
            ptrace(libc::PTRACE_SETREGS, self.pid, 0, (&raw mut regs).cast())?;
            for _ in 0..MAX_STEPS {
                ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, std::ptr::null_mut())?;
                match stopped(self.pid)? {
                    libc::SIGTRAP | 0 => {}
                    other => self.keep(other),
                }
                ptrace(libc::PTRACE_GETREGS, self.pid, 0, (&raw mut regs).cast())?;
                if done(&regs) {
                    return Ok(regs);
                }
            }
            Err(libc::ELOOP)
        }

        fn system(&mut self, number: u64, args: [u64; 6]) -> Result<u64, c_int> {
            let mut regs = self.saved;
            regs.rip = self.syscall;
            regs.rax = number;
            [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
            let end = self.syscall + 2;
            Ok(self.run(regs, |r| r.rip == end)?.rax)
        }

        /// Calls `clock_gettime(clock, page)` with the rest of the page as stack.
        fn clock(&mut self, gettime: u64, clock: c_int, page: u64) -> Result<i64, c_int> {
            let mut regs = self.saved;
            // As after a call: the stack is 8 off a multiple of 16.
            regs.rsp = page + 4096 - 64 - 8;
            ptrace(
                libc::PTRACE_POKEDATA,
                self.pid,
                regs.rsp,
                RETURN as *mut c_void,
            )?;
            regs.rip = gettime;
            regs.rdi = clock as u64;
            regs.rsi = page;
            let rax = self.run(regs, |r| r.rip == RETURN)?.rax as c_int;
            if rax != 0 {
                return Err(-rax);
            }
            let sec = ptrace(libc::PTRACE_PEEKDATA, self.pid, page, std::ptr::null_mut())?;
            let nsec = ptrace(
                libc::PTRACE_PEEKDATA,
                self.pid,
                page + 8,
                std::ptr::null_mut(),
            )?;
            Ok(sec.wrapping_mul(1_000_000_000).wrapping_add(nsec))
        }

        fn let_go(&mut self) -> Result<(), c_int> {
            ptrace(
                libc::PTRACE_SETREGS,
                self.pid,
                0,
                (&raw mut self.saved).cast(),
            )?;
            ptrace(libc::PTRACE_DETACH, self.pid, 0, std::ptr::null_mut())?;
            for s in &self.signals[..self.n] {
                // SAFETY: plain system calls.
                unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.pid, *s) };
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::Started;
    use crate::vdso::bend::{monotonic_now, wall_now};

    #[test]
    fn a_sleeping_process_tells_the_true_time_and_sleeps_on() {
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        let mut s = Started::shell("exec sleep 1");
        std::thread::sleep(std::time::Duration::from_millis(50));
        for _ in 0..20 {
            let (w, m) = (wall_now(), monotonic_now());
            let (wall, mono) = match clocks(s.pid()) {
                Ok(t) => t,
                Err(r) => return eprintln!("skipped: {r}"),
            };
            assert!((w..=wall_now()).contains(&wall));
            assert!((m..=monotonic_now()).contains(&mono));
        }
        assert!(
            s.child.wait().unwrap().success(),
            "sleep ends as if nothing had been"
        );
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let s = Started::shell("sleep 600");
        let pid = s.pid();
        drop(s);
        assert!(clocks(pid).is_err());
    }
}

//! Bending the clocks that one process reads, by rewriting its vDSO (x86-64).
//!
//! The kernel maps the vDSO, a small library with `clock_gettime`, `gettimeofday` and `time`, into
//! every process (vdso(7)). Its pages are private: a write through `/proc/PID/mem` changes them
//! for that process and for what it forks later, for nobody else. We put code of ours into the
//! unused end of the image and let the three functions jump there; it makes the real system call
//! and bends the answer. What a program *reads* is bent; sleeps and timeouts in the kernel are not.

pub mod bend;
#[cfg(target_arch = "x86_64")]
mod code;
pub mod image;
pub mod patch;
pub mod readback;

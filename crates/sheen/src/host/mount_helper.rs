//! What mount(8) wants of the programs that it calls for a type of file system: its exit codes, its mount namespace,
//! and what `mount.lustre` does besides: to try again.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sheen_types::Errno;

use super::invalid;
use crate::usage::MOUNT_USAGE_CODE;
use sheen_tools::output::{Fault, errno};

/// mount(8): the system has no memory, processes or files left.
const SYSTEM: u8 = 2;
/// mount(8): a user's interrupt.
const INTERRUPTED: u8 = 8;
/// mount(8): the mount failed.
const FAILED: u8 = 32;

/// The fault with the code by which mount(8) knows a wrong call.
pub(super) fn misused(fault: Fault) -> Fault {
    Fault { code: MOUNT_USAGE_CODE, ..fault }
}

/// The fault with the code by which mount(8) knows that a mount failed.
pub(super) fn failed(fault: Fault) -> Fault {
    let code = match Errno(u16::from(fault.code)) {
        Errno::ENOMEM | Errno::EAGAIN | Errno::ENFILE => SYSTEM,
        own if own == errno(rustix::io::Errno::MFILE) => SYSTEM,
        Errno::EINTR => INTERRUPTED,
        _ => FAILED,
    };
    Fault { code, ..fault }
}

/// Goes on in a mount namespace: that of a process (`123`), or of a file (`/run/netns/name`).
///
/// # Errors
/// What the kernel says.
pub(super) fn enter(namespace: &str) -> Result<(), Fault> {
    let is_process = namespace.bytes().all(|byte| byte.is_ascii_digit());
    let path = match is_process && !namespace.is_empty() {
        true => format!("/proc/{namespace}/ns/mnt"),
        false => namespace.to_owned(),
    };
    let refused = |error| {
        let errno = errno(error);
        Fault::new(errno, format!("mount.lustre: mount namespace {path}: {errno}"))
    };
    let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let file = file.map_err(refused)?;
    let entered = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount));
    match entered {
        Err(rustix::io::Errno::INVAL) => {
            Err(invalid(format!("mount.lustre: {path} is no mount namespace")))
        }
        entered => entered.map_err(refused),
    }
}

/// Does it up to `retries` times more, as `-o retry` says, with a pause before each: 32 s, and from the twelfth on
/// more.
pub(super) fn attempts(
    retries: u32,
    says_so: bool,
    once: impl FnMut() -> Result<(), Fault>,
) -> Result<(), Fault> {
    #[expect(clippy::disallowed_methods, reason = "a tool that waits")]
    let pause = |length| std::thread::sleep(length);
    attempts_with(retries, says_so, pause, once)
}

fn attempts_with(
    retries: u32,
    says_so: bool,
    mut pause: impl FnMut(Duration),
    mut once: impl FnMut() -> Result<(), Fault>,
) -> Result<(), Fault> {
    for number in 0..retries {
        let Err(fault) = once() else { return Ok(()) };
        if says_so {
            eprintln!("{}; retries left: {}", fault.text, retries - number);
        }
        pause(Duration::from_secs(1 << (number / 2).max(5)));
    }
    once()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_mount_8s() {
        let codes = [Errno::ENOMEM, Errno::EINTR, Errno::ENOENT, Errno::ETIMEDOUT, Errno::EINVAL]
            .map(|errno| failed(Fault::new(errno, "why")).code);
        assert_eq!(codes, [2, 8, 32, 32, 32]);
        assert_eq!(misused(invalid("why")), Fault { code: 1, text: "why".to_owned() });
    }

    #[test]
    fn what_fails_is_tried_again_as_often_as_asked_for() {
        let run = |retries, failures| {
            let (mut pauses, mut tries) = (Vec::new(), 0);
            let done = attempts_with(
                retries,
                false,
                |length| pauses.push(length.as_secs()),
                || {
                    tries += 1;
                    if tries > failures { Ok(()) } else { Err(invalid("not yet")) }
                },
            );
            (done.is_ok(), tries, pauses)
        };
        assert_eq!(run(0, 1), (false, 1, vec![]));
        assert_eq!(run(0, 0), (true, 1, vec![]));
        assert_eq!(run(3, 2), (true, 3, vec![32, 32]));
        assert_eq!(run(2, 9), (false, 3, vec![32, 32]));
        let (done, tries, pauses) = run(14, 99);
        assert_eq!((done, tries, &pauses[11..]), (false, 15, &[32, 64, 64][..]));
    }

    #[test]
    fn what_is_no_mount_namespace_is_not_entered() {
        assert_eq!(enter("/no/such/namespace").expect_err("none").code, 2);
        assert_eq!(enter("/proc/self/status").expect_err("no namespace").code, 22);
    }
}

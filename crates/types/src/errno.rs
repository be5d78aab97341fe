//! Error numbers, as Linux numbers them on x86-64 and as Lustre sends them on the wire.

use std::fmt;

/// A positive Linux error number. On the wire (`pb_status`, `lock_policy_res2` ...) it is negated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// The symbolic name, if this number has one here.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(stringify!($name)),)* _ => None }
            }

            /// What `strerror` says, or "Unknown error".
            #[must_use]
            pub fn message(self) -> &'static str {
                match self.0 { $($value => $text,)* _ => "Unknown error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    EPIPE = 32, "Broken pipe";
    EDOM = 33, "Numerical argument out of domain";
    ERANGE = 34, "Numerical result out of range";
    EDEADLK = 35, "Resource deadlock avoided";
    ENAMETOOLONG = 36, "File name too long";
    ENOLCK = 37, "No locks available";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENODATA = 61, "No data available";
    ETIME = 62, "Timer expired";
    EREMOTE = 66, "Object is remote";
    EPROTO = 71, "Protocol error";
    EBADMSG = 74, "Bad message";
    EOVERFLOW = 75, "Value too large for defined data type";
    EBADFD = 77, "File descriptor in bad state";
    EUSERS = 87, "Too many users";
    EPROTONOSUPPORT = 93, "Protocol not supported";
    EOPNOTSUPP = 95, "Operation not supported";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ESTALE = 116, "Stale file handle";
    EUCLEAN = 117, "Structure needs cleaning";
    EDQUOT = 122, "Disk quota exceeded";
    ENOMEDIUM = 123, "No medium found";
    ECANCELED = 125, "Operation canceled";
    ELDLM_LOCK_ABORTED = 301, "Lock not granted";
    ELDLM_NO_LOCK_DATA = 303, "No data for the lock";
    ENOTSUPP = 524, "Operation is not supported";
}

impl Errno {
    /// The number as a program may see it. Numbers that Linux has for itself alone, and those of Lustre's lock
    /// manager, become what they mean to a program; what has no name there becomes [`Errno::EIO`].
    #[must_use]
    pub fn shown(self) -> Self {
        match self.0 {
            1..=133 => self,
            // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
            512..=514 | 516 => Self::EINTR,
            // ENOIOCTLCMD.
            515 => Self::ENOTTY,
            // EBADHANDLE.
            521 => Self::ESTALE,
            // ENOTSUPP.
            524 => Self::EOPNOTSUPP,
            // EJUKEBOX.
            528 => Self::EAGAIN,
            _ => Self::EIO,
        }
    }

    /// The value as a reply carries it: negative.
    #[must_use]
    pub fn status(self) -> i32 {
        -i32::from(self.0)
    }

    /// From a reply's status; `None` for zero and for positive values, which are no errors.
    #[must_use]
    pub fn from_status(status: i32) -> Option<Self> {
        match status.checked_neg().map(u16::try_from) {
            Some(Ok(number)) if number > 0 => Some(Self(number)),
            Some(Ok(_)) => None,
            _ if status < 0 => Some(Self::EPROTO),
            _ => None,
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => out.write_str(name),
            None => write!(out, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            "Unknown error" => write!(out, "Unknown error {}", self.0),
            text => out.write_str(text),
        }
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn a_status_is_the_negated_number() {
        assert_eq!(Errno::ENOENT.status(), -2);
        assert_eq!(Errno::from_status(-2), Some(Errno::ENOENT));
        assert_eq!(Errno::from_status(0), None);
        assert_eq!(Errno::from_status(301), None);
        assert_eq!(Errno::from_status(i32::MIN), Some(Errno::EPROTO));
    }
}

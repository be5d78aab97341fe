//! Cookies.

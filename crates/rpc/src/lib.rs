//! PtlRPC as state machines: imports, exports, resend, replay, adaptive timeouts.

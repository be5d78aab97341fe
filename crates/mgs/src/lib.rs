//! The management service: registration, configuration logs, configuration locks.

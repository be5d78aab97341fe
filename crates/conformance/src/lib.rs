//! Captures of a real Lustre, read, decoded and compared.

//! The store contract on a local disk: fjall under a write-back overlay, objects as sparse files.

//! What is known of a file, beside what every inode has.

use std::sync::Arc;

use sheen_types::{Extent, Timestamp};

use super::failures::Failures;
use super::heat::Heat;
use super::kernel_size::KernelSize;
use super::open_cache::OpenCache;
use crate::data::{DataFile, LayoutGuard};

/// What only a file has. Its layout is in [`CoveredState`](super::covered::CoveredState).
#[derive(Default)]
pub(crate) struct FileState {
    /// Its data, by the layout that was seen last.
    pub(crate) data: Option<Arc<dyn DataFile>>,
    /// What its data keeps when the layout changes.
    pub(crate) layout_guard: Arc<LayoutGuard>,
    /// How many of the open handles may write.
    pub(crate) writers: u64,
    /// How many of them bypass the kernel's pages.
    pub(crate) bypassing: u64,
    /// How often it was opened, and the opens that are cached for later ones.
    pub(crate) open_cache: OpenCache,
    /// When it was last read through this client, as far as that was noted.
    pub(crate) accessed: Option<Timestamp>,
    /// How much it is used lately, once that was counted or its counting turned off.
    pub(crate) heat: Option<Box<Heat>>,
    /// The pages of writes through the kernel's pages that are not accepted yet.
    pub(crate) page_writes: Vec<Extent>,
    /// The size that the kernel has.
    pub(crate) kernel_size: KernelSize,
    /// Whether the kernel has asked for a program's capabilities: it may believe that there are none from then on.
    pub(crate) kernel_asked_for_capabilities: bool,
    /// Write-back that failed.
    pub(crate) failures: Failures,
}

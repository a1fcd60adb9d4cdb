//! Memory that other processes and other devices map, and memory of theirs that is mapped here.
//!
//! The engine sees no work of other processes: a host that shares a block keeps the block until that work has
//! completed. The physical memory stays for as long as another process maps it, also after it has gone here.

use std::collections::BTreeMap;

use super::live_blocks::BlockSite;
use super::names::BlockId;
use super::pools::{with_heap, Pools};
use super::{Error, Sharing};
use crate::driver::{Descriptor, Driver};
pub use crate::heap::WhyNotShared;
use crate::heap::{HeapSegment, Shared};

/// Memory that [`Sharing::import`] has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImportId {
    engine: u32,
    number: u64,
}

/// Others' memory that is mapped here, and the devices that all memory was opened to.
#[derive(Debug, Default)]
pub(super) struct Imports {
    mapped: BTreeMap<u64, HeapSegment>,
    next: u64,
    peers: Vec<u32>,
}

impl<D: Driver> Sharing<'_, D> {
    /// Exports the pieces of memory that a block lies on, where they are not exported yet, and says which they are and
    /// where the block lies in them, so that other processes can map them. Whole pieces are shared, with all blocks on
    /// them. Mapped memory must have been made exportable (`exportable` in [`Settings`](crate::settings::Settings)).
    ///
    /// The block must live until the other processes have finished with it, which the engine does not see.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NotShared`]; the driver's.
    pub fn share(&self, block: BlockId) -> Result<Shared, Error> {
        self.0.change(|locked| {
            let BlockSite { heap, range, .. } = locked.state.live_block(block, "share")?.0.site;
            let not_shared = |why| Error::NotShared { block: block.number(), why };
            // Its piece stays as it is from now on, which may show in the figures.
            let Some(heap) = locked.state.pools.find_heap_mut(heap) else {
                return Err(not_shared(WhyNotShared::Planned));
            };
            heap.share(locked.driver, range)?.map_err(not_shared)
        })
    }

    /// Tells the engine that other processes or devices have mapped the memory behind `bytes` bytes from `address` on,
    /// by handles that the engine did not make (`cuMemRetainAllocationHandle`, by which libraries export memory). That
    /// memory must stay behind these addresses, or what a graph writes there would not reach the others. Whole pieces
    /// stay. Returns whether the address is one of this engine's.
    ///
    /// From now on calls that would exchange the memory are refused with
    /// [`PoolRefusal::Exported`](crate::PoolRefusal::Exported): sleeping, and suspension of its pool. Blocks there may
    /// be handed out and lent as before, in the same memory; the engine does not see work of other processes. The
    /// memory goes back to the driver only when no block and no graph uses it, and the mark goes with it.
    ///
    /// # Errors
    /// [`Error::NotKept`] where the memory comes at a capture's end, and is exchanged by later captures and by
    /// [`HostCalls::compact_pool`](crate::engine::HostCalls::compact_pool)
    /// ([`Engine::allocate_fixed`](super::Engine::allocate_fixed) gives such captures memory that stays), or where
    /// there is none now; [`Error::ZeroBytes`].
    pub fn keep_exported(&self, address: u64, bytes: u64) -> Result<bool, Error> {
        self.0.change(|locked| {
            if bytes == 0 {
                return Err(Error::ZeroBytes { call: "keep_exported" });
            }
            let pools = &mut locked.state.pools;
            let Some(heap) = pools.heap_around(address) else { return Ok(false) };
            let there = !pools.is_shut(pools.pool_of(heap)) && address.checked_add(bytes).is_some();
            let planned = there && Pools::is_planned(heap);
            let why = if planned { WhyNotShared::Planned } else { WhyNotShared::Suspended };
            // Its piece stays as it is from now on, which may show in the figures.
            let kept =
                there && with_heap!(mut pools, heap, |heap| heap.keep_exported((address, bytes)));
            kept.then_some(true).ok_or(Error::NotKept { address, why })
        })
    }

    /// Maps memory that another process has exported, one piece after the other, and returns the address of the first.
    /// Each piece comes with its size in bytes. Devices to which this device's memory is open may use it too. No figure
    /// counts this memory and no limit applies; it stays mapped until [`Sharing::close_import`], also after the engine
    /// is dropped.
    ///
    /// # Errors
    /// The driver's. Nothing is mapped then.
    pub fn import(&self, pieces: &[(u64, &Descriptor)]) -> Result<(ImportId, u64), Error> {
        self.0.change(|locked| {
            let imported = HeapSegment::import(locked.driver, pieces)?;
            let address = imported.address;
            let imports = &mut locked.state.imports;
            let number = imports.next;
            imports.next += 1;
            imports.mapped.insert(number, imported);
            Ok((ImportId { engine: self.0.number, number }, address))
        })
    }

    /// Unmaps what [`Sharing::import`] mapped. No work and no later launch of a graph may use it any more. Does nothing
    /// for an import that is gone.
    ///
    /// # Errors
    /// The driver's. The import is gone all the same; addresses that could not be unmapped are not used again.
    pub fn close_import(&self, import: ImportId) -> Result<(), Error> {
        let mine = import.engine == self.0.number;
        self.0.change(|locked| {
            let imports = &mut locked.state.imports;
            let imported = mine.then(|| imports.mapped.remove(&import.number)).flatten();
            Ok(imported.map_or(Ok(()), |imported| imported.close(locked.driver))?)
        })
    }

    /// Lets the device with this ordinal read and write all memory of the engine, present and future. A second call
    /// does nothing.
    ///
    /// # Errors
    /// The driver's, where the other device cannot reach this one's memory for instance. A second call goes on from
    /// there.
    pub fn open_to(&self, device: u32) -> Result<(), Error> {
        self.0.change(|locked| {
            if locked.state.imports.peers.contains(&device) {
                return Ok(());
            }
            locked.driver.open_to(device)?;
            let pools = &locked.state.pools;
            pools.heaps().try_for_each(|heap| heap.grant(locked.driver))?;
            pools.iter_planned().try_for_each(|heap| heap.grant(locked.driver))?;
            let imports = &mut locked.state.imports;
            imports.mapped.values().try_for_each(|imported| imported.grant(locked.driver))?;
            imports.peers.push(device);
            Ok(())
        })
    }
}

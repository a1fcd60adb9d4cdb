//! The devices of the machine.

use std::ffi::c_char;

use crate::arguments::{give, Out};
use crate::error::regraph_error;
use crate::rows::Rows;

/// A CUDA device. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_device {
    /// Its name, which lives as long as the list.
    pub name: *const c_char,
    /// Its memory, in bytes.
    pub total_bytes: u64,
    /// What regraph_engine_create_cuda() makes an engine on it by.
    pub ordinal: u32,
}

/// The CUDA devices at one time, in the order of their ordinals.
#[derive(Debug)]
pub struct regraph_device_list(Rows<regraph_device>);

/// Lists the CUDA devices that the process can use (CUDA_VISIBLE_DEVICES); none where the machine has
/// none. `devices` gets a list to be destroyed with regraph_device_list_destroy(). Makes no context.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NO_DRIVER; REGRAPH_ERROR_DRIVER_TOO_OLD; REGRAPH_ERROR_DRIVER;
/// REGRAPH_ERROR_NOT_SUPPORTED where the library was built without CUDA; REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_get_devices(
    devices: *mut *mut regraph_device_list,
) -> regraph_error {
    fallible!({
        let out = Out::needed(devices, "devices")?;
        #[cfg(feature = "cuda")]
        {
            let mut list = Rows::new();
            for device in regraph::driver::cuda::devices()? {
                let (ordinal, total_bytes) = (device.ordinal, device.total_bytes);
                let name = list.text(device.name);
                list.push(regraph_device { name, total_bytes, ordinal });
            }
            out.put(give(regraph_device_list(list)));
            Ok(())
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (out, give::<regraph_device_list>);
            Err(crate::failure::Failure::NoCuda)
        }
    })
}

/// The number of devices of a list; 0 for NULL.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_device_list_count(devices: *const regraph_device_list) -> usize {
    count!(devices)
}

/// One device of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an index beyond the end.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_device_list_get(
    devices: *const regraph_device_list,
    index: usize,
) -> *const regraph_device {
    row!(devices, index)
}

/// Destroys a list. Does nothing for NULL.
///
/// Threads: any, while no other call uses the list.
#[no_mangle]
pub unsafe extern "C" fn regraph_device_list_destroy(devices: *mut regraph_device_list) {
    destroy!(devices)
}

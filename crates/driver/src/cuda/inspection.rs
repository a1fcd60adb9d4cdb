//! What a node's parameters hold that may be a device address.
//!
//! The driver says where each parameter of a kernel begins and how long it is, but not what it is, so every aligned
//! eight-byte value counts: a pointer passed by value is one of them, also inside a structure, since the ABI aligns it.
//!
//! The functions for it are newer than those that the driver object needs (CUDA 12.4), and a driver
//! without them shows nothing.

use std::ffi::{c_char, CStr};
use std::mem::size_of;
use std::ptr::null_mut;

use super::super::{GraphHandle, NodeKind, NodeShape};
use super::raw::{
    AttributeValue, CopyNodeParams, FillNodeParams, HostNodeParams, KernelNodeParams, Pointer,
    DEVICE_UPDATABLE, NODE_ATTRIBUTES,
};
use super::symbols::library;

/// More parameters than any kernel has: they take at most 32,764 bytes.
const MOST_PARAMETERS: usize = 1 << 15;
/// More bytes than the parameters of any kernel take.
const MOST_BYTES: usize = 1 << 16;

/// `CU_LAUNCH_PARAM_END`, `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;

macro_rules! optional_symbols {
    ($($field:ident = $name:literal ($($kind:ty),* $(,)?);)*) => {
        /// Functions of libcuda that a driver may lack.
        #[derive(Clone, Copy)]
        pub(super) struct Inspection {
            $($field: Option<unsafe extern "C" fn($($kind),*) -> u32>,)*
        }

        impl Inspection {
            /// Looks the functions up.
            pub fn load() -> Self {
                let library = library().ok();
                Self {
                    $($field: library.and_then(|library| {
                        // SAFETY: the type is the C prototype of this symbol in cuda.h, with
                        // enums as the unsigned ints they are.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($kind),*) -> u32>(
                                concat!($name, "\0").as_bytes(),
                            )
                        };
                        found.ok().map(|symbol| *symbol)
                    }),)*
                }
            }
        }
    };
}

optional_symbols! {
    kernel_params = "cuGraphKernelNodeGetParams_v2"(Pointer, *mut KernelNodeParams);
    copy_params = "cuGraphMemcpyNodeGetParams"(Pointer, *mut CopyNodeParams);
    fill_params = "cuGraphMemsetNodeGetParams"(Pointer, *mut FillNodeParams);
    host_params = "cuGraphHostNodeGetParams"(Pointer, *mut HostNodeParams);
    kernel_attribute =
        "cuGraphKernelNodeGetAttribute"(Pointer, u32, *mut AttributeValue);
    child_graph = "cuGraphChildGraphNodeGetGraph"(Pointer, *mut Pointer);
    function_param = "cuFuncGetParamInfo"(Pointer, usize, *mut usize, *mut usize);
    kernel_param = "cuKernelGetParamInfo"(Pointer, usize, *mut usize, *mut usize);
    function_name = "cuFuncGetName"(*mut *const c_char, Pointer);
    kernel_name = "cuKernelGetName"(*mut *const c_char, Pointer);
}

/// The kinds of nodes whose parameters hold addresses.
#[derive(Clone, Copy)]
pub(super) enum Inspected {
    Kernel,
    Copy,
    Fill,
}

/// A failed call: its name and code.
pub(super) type Failure = (&'static str, u32);

impl Inspection {
    /// The values of a kernel, a copy or a fill. The thread is relaxed and its context current.
    pub fn values(
        &self,
        node: Pointer,
        kind: Inspected,
        values: &mut Vec<u64>,
    ) -> Result<(), Failure> {
        match kind {
            Inspected::Kernel => {
                if let Some(params) = self.kernel(node)? {
                    // SAFETY: the driver has just given the parameters, and the node lives.
                    unsafe { self.kernel_values(&params, values) };
                }
            }
            // The source first.
            Inspected::Copy => {
                let Some(params) = self.copy(node)? else { return Ok(()) };
                values.extend([params.source(), params.destination()]);
            }
            Inspected::Fill => {
                let Some(params) = self.fill(node)? else { return Ok(()) };
                values.push(params.start);
            }
        }
        Ok(())
    }

    /// The graph within a child graph node, which the node owns.
    pub fn child(&self, node: Pointer) -> Result<Option<Pointer>, Failure> {
        let Some(ask) = self.child_graph else { return Ok(None) };
        let mut graph: Pointer = null_mut();
        // SAFETY: writes one handle.
        answer("cuGraphChildGraphNodeGetGraph", unsafe { ask(node, &mut graph) })?;
        Ok((!graph.is_null()).then_some(graph))
    }

    /// The name of a kernel node's kernel.
    pub fn name(&self, node: Pointer) -> Option<String> {
        let params = self.kernel(node).ok()??;
        let (ask, of) = match params.function.is_null() {
            false => (self.function_name?, params.function),
            true => (self.kernel_name?, params.kernel),
        };
        if of.is_null() {
            return None;
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the handle is the node's own; writes one pointer.
        let code = unsafe { ask(&mut name, of) };
        if code != 0 || name.is_null() {
            return None;
        }
        // SAFETY: on success the driver gave a nul-terminated string that lives with the kernel.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// What a node has that an update of an executable does not change. The thread is relaxed and its context current.
    pub fn shape(&self, node: Pointer, kind: NodeKind) -> Result<NodeShape, Failure> {
        let shape = NodeShape::new(kind);
        let known = match kind {
            NodeKind::KERNEL => match (self.kernel(node)?, self.attributes(node)) {
                (Some(params), Some(attributes)) => {
                    let handles = [params.function, params.kernel, params.context];
                    let parameters = self.parameters(&params);
                    Some(
                        shape.function(handles.map(|it| it as usize), parameters).fixed(attributes),
                    )
                }
                _ => None,
            },
            NodeKind::COPY => {
                let memory = self.copy(node)?.and_then(|params| params.memory());
                memory.map(|kinds| shape.fixed(kinds.to_vec()))
            }
            NodeKind::FILL => self.fill(node)?.map(|params| shape.fixed(params.fixed())),
            NodeKind::HOST => match self.host_params {
                Some(ask) => {
                    let mut params = HostNodeParams::default();
                    // SAFETY: writes one structure of the type's layout.
                    answer("cuGraphHostNodeGetParams", unsafe { ask(node, &mut params) })?;
                    Some(shape.function([params.function], Vec::new()))
                }
                None => None,
            },
            NodeKind::CHILD_GRAPH => {
                self.child(node)?.map(|graph| NodeShape::child(GraphHandle::from_raw(graph)))
            }
            NodeKind::EMPTY => Some(shape),
            // Memory, events, semaphores, conditions, and what is newer.
            _ => None,
        };
        Ok(known.unwrap_or_else(|| NodeShape::unknown(kind)))
    }

    /// A kernel node's attributes that are not zero, each with the driver's answer; `None` where they cannot be told, or
    /// kernels may change the node themselves.
    fn attributes(&self, node: Pointer) -> Option<Vec<u64>> {
        let ask = self.kernel_attribute?;
        let mut words = Vec::new();
        for attribute in NODE_ATTRIBUTES {
            let mut value = AttributeValue::default();
            // SAFETY: writes one union of the type's size.
            let code = unsafe { ask(node, attribute, &mut value) };
            if attribute == DEVICE_UPDATABLE && code == 0 && value != AttributeValue::default() {
                return None;
            }
            if code != 0 || value != AttributeValue::default() {
                words.push(u64::from(attribute) << 32 | u64::from(code));
                words.extend(value);
            }
        }
        Some(words)
    }

    fn copy(&self, node: Pointer) -> Result<Option<CopyNodeParams>, Failure> {
        let Some(ask) = self.copy_params else { return Ok(None) };
        let mut params = CopyNodeParams::default();
        // SAFETY: writes one structure of the type's layout.
        answer("cuGraphMemcpyNodeGetParams", unsafe { ask(node, &mut params) })?;
        Ok(Some(params))
    }

    fn fill(&self, node: Pointer) -> Result<Option<FillNodeParams>, Failure> {
        let Some(ask) = self.fill_params else { return Ok(None) };
        let mut params = FillNodeParams::default();
        // SAFETY: writes one structure of the type's layout.
        answer("cuGraphMemsetNodeGetParams", unsafe { ask(node, &mut params) })?;
        Ok(Some(params))
    }

    fn kernel(&self, node: Pointer) -> Result<Option<KernelNodeParams>, Failure> {
        let Some(ask) = self.kernel_params else { return Ok(None) };
        let mut params = KernelNodeParams::none();
        // SAFETY: writes one structure of the type's layout.
        answer("cuGraphKernelNodeGetParams_v2", unsafe { ask(node, &mut params) })?;
        Ok(Some(params))
    }

    /// Offset and size in bytes of each of a kernel's parameters.
    fn parameters(&self, params: &KernelNodeParams) -> Vec<(usize, usize)> {
        let (ask, of) = match params.function.is_null() {
            false => (self.function_param, params.function),
            true => (self.kernel_param, params.kernel),
        };
        let mut parameters = Vec::new();
        let Some(ask) = ask.filter(|_| !of.is_null()) else { return parameters };
        for index in 0..MOST_PARAMETERS {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the handle is the node's own; writes two sizes.
            if unsafe { ask(of, index, &mut offset, &mut bytes) } != 0 || bytes > MOST_BYTES {
                break;
            }
            parameters.push((offset, bytes));
        }
        parameters
    }

    /// # Safety
    /// The parameters are as the driver gave them, and their node has not changed since.
    unsafe fn kernel_values(&self, params: &KernelNodeParams, values: &mut Vec<u64>) {
        if !params.extra.is_null() {
            // SAFETY: the driver's own list, which ends as its documentation says.
            unsafe { extra_values(params.extra, values) };
        }
        if params.parameters.is_null() {
            return;
        }
        for (index, (offset, bytes)) in self.parameters(params).into_iter().enumerate() {
            // SAFETY: the kernel has a parameter of this index, so the array has an entry.
            let parameter = unsafe { *params.parameters.add(index) };
            if parameter.is_null() {
                return;
            }
            // SAFETY: the entry points to a copy of the parameter, of the size that was told.
            let bytes = unsafe { std::slice::from_raw_parts(parameter.cast::<u8>(), bytes) };
            aligned_values(offset, bytes, values);
        }
    }
}

fn answer(call: &'static str, code: u32) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err((call, code)),
    }
}

/// The eight-byte values of a parameter that are aligned among all parameters.
fn aligned_values(offset: usize, bytes: &[u8], values: &mut Vec<u64>) {
    let first = offset.next_multiple_of(size_of::<u64>()) - offset;
    let Some(bytes) = bytes.get(first..) else { return };
    let (words, _) = bytes.as_chunks::<8>();
    values.extend(words.iter().map(|&word| u64::from_ne_bytes(word)));
}

/// The values of parameters that were handed over in one buffer.
///
/// # Safety
/// `extra` is a list of names and values with an end, and its buffer is as long as it says.
unsafe fn extra_values(extra: *mut Pointer, values: &mut Vec<u64>) {
    /// Names that there are: more is no list.
    const MOST: usize = 8;
    let (mut buffer, mut bytes) = (null_mut::<u8>(), 0);
    for entry in 0..MOST {
        // SAFETY: the end has not come, so there is another name.
        let name = unsafe { *extra.add(2 * entry) } as usize;
        if name == EXTRA_END {
            break;
        }
        // SAFETY: each name but the end has a value behind it.
        let value = unsafe { *extra.add(2 * entry + 1) };
        match name {
            EXTRA_POINTER => buffer = value.cast(),
            // SAFETY: this name's value points to a size.
            EXTRA_SIZE if !value.is_null() => bytes = unsafe { *value.cast::<usize>() },
            // What a name that is not known stands for is not known either.
            _ => break,
        }
    }
    if !buffer.is_null() && bytes <= MOST_BYTES {
        // SAFETY: the buffer is as long as the list says.
        aligned_values(0, unsafe { std::slice::from_raw_parts(buffer, bytes) }, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_among_all_parameters() {
        let bytes: Vec<u8> = (0..24).collect();
        let word = |first: u8| u64::from_ne_bytes(std::array::from_fn(|at| first + at as u8));
        for (offset, expected) in [(0, vec![0, 8, 16]), (8, vec![0, 8, 16]), (4, vec![4, 12])] {
            let mut values = Vec::new();
            aligned_values(offset, &bytes, &mut values);
            let expected: Vec<u64> = expected.into_iter().map(word).collect();
            assert_eq!(values, expected, "offset {offset}");
        }
        let mut values = Vec::new();
        aligned_values(4, &bytes[..3], &mut values);
        assert!(values.is_empty());
    }

    #[test]
    fn a_buffer_of_parameters_is_read() {
        let mut buffer = [7_u64, 9];
        let mut size = 16_usize;
        let mut extra: [Pointer; 5] = [
            EXTRA_POINTER as Pointer,
            buffer.as_mut_ptr().cast(),
            EXTRA_SIZE as Pointer,
            (&raw mut size).cast(),
            EXTRA_END as Pointer,
        ];
        let mut values = Vec::new();
        // SAFETY: a list as the function wants it.
        unsafe { extra_values(extra.as_mut_ptr(), &mut values) };
        assert_eq!(values, [7, 9]);
    }
}

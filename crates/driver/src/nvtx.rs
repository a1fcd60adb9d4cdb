//! Marks and ranges that a profiler shows on its time line, by NVTX: NVIDIA's Tools Extension.
//!
//! NVTX is no library that a program links: it is a header that each program compiles, and what it does is little. It
//! loads the library that the environment variable [`INJECTION`] names, which the profiler has set, and has it fill
//! tables with its functions. This module does the same, so that neither a C compiler nor a library of NVTX's is
//! needed. The form of the tables is that of version 3 of the header (`nvtxDetail/nvtxTypes.h`): profilers keep to it,
//! since programs that were compiled with it years ago are profiled too.

use std::fmt;

/// The environment variable in which a profiler names the library that is to be loaded.
pub const INJECTION: &str = "NVTX_INJECTION64_PATH";

/// The domain that all marks and ranges are in, by which profilers tell them from those of other libraries.
pub const DOMAIN: &str = "regraph";

/// The profiler of this process.
pub struct Profiler(injected::Functions);

impl Profiler {
    /// Shows a moment.
    pub fn mark(&self, text: &str) {
        self.0.mark(text);
    }

    /// Shows the time from now until the range is dropped, on any thread.
    pub fn range(&'static self, text: &str) -> Range {
        Range { profiler: self, id: self.0.start(text) }
    }
}

impl fmt::Debug for Profiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiler").finish_non_exhaustive()
    }
}

/// A range that a profiler shows, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "the range ends when it is dropped"]
pub struct Range {
    profiler: &'static Profiler,
    id: u64,
}

impl Drop for Range {
    fn drop(&mut self) {
        self.profiler.0.end(self.id);
    }
}

/// The profiler of this process, `None` where there is none: the first call loads its library, which stays. Without the
/// feature `cuda` there is none.
///
/// # Errors
/// Why the library that [`INJECTION`] names cannot be used.
pub fn profiler() -> Result<Option<&'static Profiler>, &'static str> {
    injected::profiler()
}

#[cfg(not(feature = "cuda"))]
mod injected {
    /// There are none.
    pub(super) enum Functions {}

    impl Functions {
        pub(super) fn mark(&self, _text: &str) {
            match *self {}
        }

        pub(super) fn start(&self, _text: &str) -> u64 {
            match *self {}
        }

        pub(super) fn end(&self, _id: u64) {
            match *self {}
        }
    }

    pub(super) fn profiler() -> Result<Option<&'static super::Profiler>, &'static str> {
        Ok(None)
    }
}

#[cfg(feature = "cuda")]
mod injected {
    use std::env;
    use std::ffi::{c_char, c_void, CString, OsStr};
    use std::mem::{size_of, transmute};
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicPtr, Ordering};
    use std::sync::OnceLock;

    use libloading::Library;

    use super::{Profiler, DOMAIN, INJECTION};

    /// A value of [`INJECTION`] that stands for no profiler, since it cannot name a library.
    const NONE: &str = "./.";

    /// The version of the header whose tables these are.
    const VERSION: u16 = 3;

    /// The number behind those of a module's functions (`NvtxCallbackIdCore2`), which stands for none, as 0 does.
    const LAST: usize = 16;
    const FUNCTIONS: usize = LAST + 1;
    const MARK: usize = 1;
    const START: usize = 2;
    const END: usize = 3;
    const CREATE_DOMAIN: usize = 12;

    /// The module whose functions name a domain (`NVTX_CB_MODULE_CORE2`).
    const DOMAINS: u32 = 5;
    /// How many functions the modules have, by their numbers (`NvtxCallbackModule`), with the one of the number 0.
    const SIZES: [u32; 7] = [0, 16, 9, 15, 7, 16, 7];

    /// The tables that the profiler's library may ask for, by their numbers (`NvtxExportTableID`).
    const CALLBACKS: u32 = 1;
    const VERSION_INFO: u32 = 3;

    type Function = AtomicPtr<c_void>;
    /// Where each function of a module is to be put.
    type Table = [AtomicPtr<*mut c_void>; FUNCTIONS];

    /// The profiler's functions of domains, and those of the other modules, which nothing calls.
    static FOUND: [Function; FUNCTIONS] = [const { AtomicPtr::new(null_mut()) }; FUNCTIONS];
    static IGNORED: [Function; FUNCTIONS] = [const { AtomicPtr::new(null_mut()) }; FUNCTIONS];

    /// `NvtxExportTableCallbacks`
    #[repr(C)]
    struct Callbacks {
        bytes: usize,
        table: unsafe extern "C" fn(module: u32, table: *mut *const Table, size: *mut u32) -> i32,
    }

    /// `NvtxExportTableVersionInfo`
    #[repr(C)]
    struct VersionInfo {
        bytes: usize,
        version: u32,
        reserved: u32,
        set_version: extern "C" fn(version: u32),
    }

    static EXPORTED: Callbacks = Callbacks { bytes: size_of::<Callbacks>(), table };
    static OWN_VERSION: VersionInfo = VersionInfo {
        bytes: size_of::<VersionInfo>(),
        version: VERSION as u32,
        reserved: 0,
        set_version,
    };

    extern "C" fn export(id: u32) -> *const c_void {
        match id {
            CALLBACKS => (&raw const EXPORTED).cast(),
            VERSION_INFO => (&raw const OWN_VERSION).cast(),
            _ => null(),
        }
    }

    extern "C" fn set_version(_version: u32) {}

    /// Tells the profiler's library where it is to put its functions of a module. 0: there is no such module.
    unsafe extern "C" fn table(module: u32, table: *mut *const Table, size: *mut u32) -> i32 {
        static TABLES: OnceLock<[Table; 2]> = OnceLock::new();
        let of = |functions: &'static [Function; FUNCTIONS]| {
            let place = |number: usize| match number {
                0 | LAST => null_mut(),
                number => functions[number].as_ptr(),
            };
            std::array::from_fn(|number| AtomicPtr::new(place(number)))
        };
        let [found, ignored] = TABLES.get_or_init(|| [of(&FOUND), of(&IGNORED)]);
        let functions = usize::try_from(module).ok().and_then(|module| SIZES.get(module));
        let Some(&functions) = functions.filter(|&&functions| functions > 0) else { return 0 };
        // SAFETY: the profiler's library gives places for both, or null.
        unsafe {
            if let Some(table) = table.as_mut() {
                *table = if module == DOMAINS { found } else { ignored };
            }
            if let Some(size) = size.as_mut() {
                *size = functions;
            }
        }
        1
    }

    /// `nvtxEventAttributes_v2`, of which only the text is used.
    #[repr(C)]
    struct Attributes {
        version: u16,
        bytes: u16,
        category: u32,
        colour_kind: i32,
        colour: u32,
        payload_kind: i32,
        reserved: i32,
        payload: u64,
        text_kind: i32,
        text: *const c_char,
    }

    /// A text of bytes (`NVTX_MESSAGE_TYPE_ASCII`); profilers read UTF-8.
    const BYTES: i32 = 1;

    type CreateDomain = unsafe extern "C" fn(name: *const c_char) -> *mut c_void;
    type Mark = unsafe extern "C" fn(domain: *mut c_void, *const Attributes);
    type Start = unsafe extern "C" fn(domain: *mut c_void, *const Attributes) -> u64;
    type End = unsafe extern "C" fn(domain: *mut c_void, id: u64);

    /// The profiler's functions, of those that it has.
    pub(super) struct Functions {
        domain: *mut c_void,
        mark: Option<Mark>,
        start: Option<Start>,
        end: Option<End>,
        /// They lie in it.
        _library: Library,
    }

    // SAFETY: NVTX's functions may be called by any thread, with any domain.
    unsafe impl Send for Functions {}
    // SAFETY: as above.
    unsafe impl Sync for Functions {}

    impl Functions {
        pub(super) fn mark(&self, text: &str) {
            if let Some(mark) = self.mark {
                // SAFETY: the attributes and their text live until the function returns.
                with(text, |attributes| unsafe { mark(self.domain, attributes) });
            }
        }

        pub(super) fn start(&self, text: &str) -> u64 {
            self.start.map_or(0, |start| {
                // SAFETY: as in `mark`.
                with(text, |attributes| unsafe { start(self.domain, attributes) })
            })
        }

        pub(super) fn end(&self, id: u64) {
            if let (Some(end), Some(_)) = (self.end, self.start) {
                // SAFETY: the number is one that the profiler gave, and each is ended once.
                unsafe { end(self.domain, id) };
            }
        }
    }

    fn with<R>(text: &str, show: impl FnOnce(*const Attributes) -> R) -> R {
        // A byte of zero would end it.
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        show(&Attributes {
            version: VERSION,
            bytes: size_of::<Attributes>() as u16,
            category: 0,
            colour_kind: 0,
            colour: 0,
            payload_kind: 0,
            reserved: 0,
            payload: 0,
            text_kind: BYTES,
            text: text.as_ptr(),
        })
    }

    pub(super) fn profiler() -> Result<Option<&'static Profiler>, &'static str> {
        static PROFILER: OnceLock<Result<Option<Profiler>, String>> = OnceLock::new();
        let profiler = PROFILER.get_or_init(|| {
            let path = env::var_os(INJECTION).filter(|path| !path.is_empty() && path != NONE);
            path.map(|path| load(&path).map(Profiler)).transpose()
        });
        profiler.as_ref().map(Option::as_ref).map_err(String::as_str)
    }

    /// What the loader says.
    fn why(error: &libloading::Error) -> String {
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
    }

    fn load(path: &OsStr) -> Result<Functions, String> {
        const BEGIN: &str = "InitializeInjectionNvtx2";
        type Begin = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> i32;
        let shown = path.to_string_lossy();
        // SAFETY: who sets the variable wants this library's initializers to run in each program that uses NVTX.
        let library = unsafe { Library::new(path) };
        let library =
            library.map_err(|error| format!("{shown} cannot be loaded: {}", why(&error)))?;
        // SAFETY: the type is that of `NvtxInitializeInjectionNvtxFunc_t`.
        let begin = unsafe { library.get::<Begin>(BEGIN.as_bytes()) };
        let begin = *begin.map_err(|error| format!("{shown} has no {BEGIN}: {}", why(&error)))?;
        // SAFETY: the tables are static, and of the form that the header gives them.
        if unsafe { begin(export) } == 0 {
            return Err(format!("{shown} refuses to be used: its {BEGIN} returned 0"));
        }
        let found = |number: usize| FOUND[number].load(Ordering::Acquire);
        // SAFETY: these are the types of the functions of these numbers; a null pointer is `None`.
        let (create, mark, start, end) = unsafe {
            (
                transmute::<*mut c_void, Option<CreateDomain>>(found(CREATE_DOMAIN)),
                transmute::<*mut c_void, Option<Mark>>(found(MARK)),
                transmute::<*mut c_void, Option<Start>>(found(START)),
                transmute::<*mut c_void, Option<End>>(found(END)),
            )
        };
        let name = CString::new(DOMAIN).unwrap_or_default();
        // SAFETY: the name lives until the function returns. Without a domain all is in the one of the whole process.
        let domain = create.map_or(null_mut(), |create| unsafe { create(name.as_ptr()) });
        Ok(Functions { domain, mark, start, end, _library: library })
    }
}

//! The configuration of engines.

use std::ffi::c_char;

use regraph::engine::Config;
use regraph::settings::Settings;

use crate::arguments::{changed, give, text, Out};
use crate::error::regraph_error;

/// The configuration of engines. Opaque, with a call for each option, so that later versions can
/// add options. Any number of engines can be created with one; an engine copies it.
///
/// Threads: any, but one at a time for each config.
#[derive(Debug, Default)]
pub struct regraph_config {
    config: Config,
}

impl regraph_config {
    /// The config that a pointer names: the default for null.
    ///
    /// # Safety
    /// `config` is null, or a config that is not changed or destroyed meanwhile.
    pub(crate) unsafe fn read(config: *const Self) -> Config {
        // SAFETY: as the caller promised.
        unsafe { config.as_ref() }.map(|config| config.config.clone()).unwrap_or_default()
    }
}

/// Changes a config: `choose!(config, value)`, where `value` is evaluated with that name for the options so far.
macro_rules! choose {
    ($config:ident, $value:expr) => {
        fallible!({
            let place = changed($config, "config")?;
            let $config = place.config.clone();
            place.config = $value;
            Ok(())
        })
    };
}

/// Creates a config with every option at its default. To be destroyed with regraph_config_destroy().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_config_create(config: *mut *mut regraph_config) -> regraph_error {
    fallible!({
        Out::needed(config, "config")?.put(give(regraph_config::default()));
        Ok(())
    })
}

/// Destroys a config. Does nothing for NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_config_destroy(config: *mut regraph_config) {
    destroy!(config)
}

/// Replaces all settings by those of a text such as "programmatic:lag,memory_limit_mb:4096": keys
/// and values as in the environment variable REGRAPH_ALLOC_CONF, whose format is that of
/// PYTORCH_ALLOC_CONF. Settings that the text does not name get their defaults.
///
/// Errors: REGRAPH_ERROR_SETTINGS, whose message names the byte and what is allowed there;
/// REGRAPH_ERROR_INVALID_TEXT; REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_config_set_settings(
    config: *mut regraph_config,
    settings: *const c_char,
) -> regraph_error {
    choose!(config, config.settings(Settings::parse(text(settings, "settings")?)?))
}

/// Replaces all settings by those of the environment variables REGRAPH_ALLOC_CONF and
/// REGRAPH_NO_MEMORY_CACHING. Engines never read them by themselves.
///
/// Errors: REGRAPH_ERROR_SETTINGS, whose message names the variable; REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_config_set_settings_from_environment(
    config: *mut regraph_config,
) -> regraph_error {
    choose!(config, config.settings(Settings::from_environment()?))
}

/// Whether captures keep a journal even if the setting "check" is False. Default: no.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_config_set_journal(
    config: *mut regraph_config,
    journal: bool,
) -> regraph_error {
    choose!(config, config.journal(journal))
}

/// Whether the end of a capture searches the parameters of the graph's nodes for uses of blocks
/// later than was recorded, counts them in its report and tells them in a message. Needs a
/// journal. Default: yes in debug builds of the library, no in others.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_config_set_find_late_uses(
    config: *mut regraph_config,
    find: bool,
) -> regraph_error {
    choose!(config, config.find_late_uses(find))
}

/// Whether a capture with such a use is refused (REGRAPH_ERROR_LATE_USE). Needs regraph_config_set_find_late_uses().
/// Default: no, since a parameter may look like an address and be none.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_config_set_refuse_late_uses(
    config: *mut regraph_config,
    refuse: bool,
) -> regraph_error {
    choose!(config, config.refuse_late_uses(refuse))
}

/// Whether a message names blocks that were never freed when the engine is destroyed. Default: yes.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_config_set_report_leaks(
    config: *mut regraph_config,
    report: bool,
) -> regraph_error {
    choose!(config, config.report_leaks(report))
}

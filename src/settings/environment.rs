//! Settings from environment variables.

use std::ffi::OsString;

use super::error::quote;
use super::{Settings, SettingsError};

/// The environment variable that holds the text of the settings.
pub const ALLOC_CONF: &str = "REGRAPH_ALLOC_CONF";

/// The environment variable that turns caching off if it is `1`.
pub const NO_MEMORY_CACHING: &str = "REGRAPH_NO_MEMORY_CACHING";

impl Settings {
    /// Reads the settings from the process environment: `REGRAPH_ALLOC_CONF` holds their text, and
    /// `REGRAPH_NO_MEMORY_CACHING=1` turns `caching` off even if the text says otherwise (`0`, empty or not
    /// set: as the text says).
    ///
    /// # Errors
    /// The first thing that is not allowed, with the variable's name.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::default().overlaid_by_environment()
    }

    /// Reads the settings from the process environment as [`Settings::from_environment`] does; what it leaves out
    /// stays as it is here.
    ///
    /// # Errors
    /// As [`Settings::from_environment`].
    pub fn overlaid_by_environment(self) -> Result<Self, SettingsError> {
        self.overlaid_by(|name| std::env::var_os(name))
    }

    /// As [`from_environment`](Self::from_environment), with the variables that `lookup` knows.
    ///
    /// # Errors
    /// The first thing that is not allowed, with the variable's name.
    pub fn from_variables(
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingsError> {
        Self::default().overlaid_by(lookup)
    }

    fn overlaid_by(self, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingsError> {
        let text = |variable, expected| {
            lookup(variable).unwrap_or_default().into_string().map_err(|found| {
                let found = quote(&found.to_string_lossy());
                SettingsError::VariableValue { variable, found, expected }
            })
        };
        let mut settings = self.overlaid(&text(ALLOC_CONF, "UTF-8 text")?).map_err(|source| {
            SettingsError::Variable { variable: ALLOC_CONF, source: Box::new(source) }
        })?;
        let (variable, expected) = (NO_MEMORY_CACHING, "1 (no caching), 0 or nothing");
        let flag = text(variable, expected)?;
        match flag.as_str() {
            "1" => settings.caching = false,
            "0" | "" => {}
            found => {
                let found = quote(found);
                return Err(SettingsError::VariableValue { variable, found, expected });
            }
        }
        Ok(settings)
    }
}

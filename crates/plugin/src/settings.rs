//! What the settings are where nothing is said, and what texts for PyTorch make of them.

use regraph::settings::{PlanChoice, Programmatic, Settings, SettingsError};

/// How much captures that are announced as alone map at once where the settings do not say: as much as pays, in bytes.
pub(super) const AHEAD: u64 = 64 << 20;

/// The settings of a host such as PyTorch where its user says nothing; the library's own are those of its captures
/// alone.
///
/// Memory can go to other processes and be registered by communication libraries. Kernels that are launched
/// programmatically are trusted to wait before they touch memory, as cuBLAS's and others' do: outside captures too,
/// PyTorch gives a stream its freed memory back at once. Hosts warm up what they capture: captures learn from it.
#[must_use]
pub fn of_hosts() -> Settings {
    Settings::default()
        .exportable(true)
        .programmatic(Programmatic::Trust)
        .growth_step_bytes(Some(AHEAD))
        .plan(PlanChoice::Auto)
}

/// The settings of a host to which texts for PyTorch are given, one after the other.
///
/// As with PyTorch, each text stands for all that is said: it replaces the one before, and what it leaves out is as
/// without any. Programs change one key by giving the whole text with it, and put the old text back.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// Without any text.
    own: Settings,
    /// Of the first text, over which the host's own settings go.
    first: Settings,
    /// What the first text says by itself.
    said_first: Settings,
    text: String,
}

impl Overlay {
    /// Of a first text, and the host's own settings, which go over it. Returns also the keys of the text that mean
    /// nothing here.
    ///
    /// # Errors
    /// The first thing in the texts that is not allowed.
    pub fn new(
        text: &str,
        own: impl Fn(Settings) -> Result<Settings, SettingsError>,
    ) -> Result<(Self, Vec<String>), SettingsError> {
        let (said_first, unused) = of_hosts().overlaid_by_pytorch(text)?;
        let first = own(said_first.clone())?;
        Ok((Self { own: own(of_hosts())?, first, said_first, text: text.to_owned() }, unused))
    }

    /// The settings with the first text.
    pub fn first(&self) -> &Settings {
        &self.first
    }

    /// The latest text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The settings with another text instead, and its keys that mean nothing here. What it names goes over the
    /// host's own settings, unless it says what the first one said: then they are those of the first.
    ///
    /// # Errors
    /// The first thing in the text that is not allowed. Nothing has changed.
    pub fn change(&mut self, text: &str) -> Result<(Settings, Vec<String>), SettingsError> {
        let (said, unused) = of_hosts().overlaid_by_pytorch(text)?;
        let settings = if said == self.said_first {
            self.first.clone()
        } else {
            self.own.clone().overlaid_by_pytorch(text)?.0
        };
        text.clone_into(&mut self.text);
        Ok((settings, unused))
    }
}

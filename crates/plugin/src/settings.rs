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

/// Texts for PyTorch that a host is given, one after the other, and what they leave of its own settings.
///
/// As with PyTorch, a text that leaves out one of four keys sets that back ([`Overlay::change`]), and leaves all others.
/// Programs change one key by giving the whole text with it, and put the old text back.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// Without any text.
    own: Settings,
    /// Keys of the first text that the host's own settings went over: what it said, and what they say.
    over: Vec<(&'static str, String, String)>,
    text: String,
}

impl Overlay {
    /// Of a first text, and the host's own settings, which go over it. Returns also the settings with both, and the keys
    /// of the text that mean nothing here.
    ///
    /// # Errors
    /// The first thing in the texts that is not allowed.
    pub fn new(
        text: &str,
        own: impl Fn(Settings) -> Result<Settings, SettingsError>,
    ) -> Result<(Self, Settings, Vec<String>), SettingsError> {
        let (said, unused) = of_hosts().overlaid_by_pytorch(text)?;
        let first = own(said.clone())?;
        let names =
            |key| text.split(',').filter_map(|it| it.split(':').next()).any(|it| it.trim() == key);
        let over = said.values().zip(first.values());
        let over = over.map(|((key, said), (_, first))| (key, said, first));
        let over = over.filter(|(key, said, first)| names(*key) && said != first).collect();
        Ok((Self { own: own(of_hosts())?, over, text: text.to_owned() }, first, unused))
    }

    /// The latest text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The settings that another text makes of those of now, and its keys that mean nothing here. What it names goes
    /// over the host's own settings, but for what the first text said too and they replaced.
    ///
    /// # Errors
    /// The first thing in the text that is not allowed. Nothing has changed.
    pub fn change(
        &mut self,
        now: Settings,
        text: &str,
    ) -> Result<(Settings, Vec<String>), SettingsError> {
        let base = now
            .max_split_bytes(self.own.max_split_bytes)
            .max_non_split_rounding_bytes(self.own.max_non_split_rounding_bytes)
            .garbage_collection_threshold(self.own.garbage_collection_threshold)
            .rounding(self.own.rounding);
        let (mut settings, unused) = base.overlaid_by_pytorch(text)?;
        for (key, said, own) in &self.over {
            if settings.values().any(|(it, value)| it == *key && value == *said) {
                settings = settings.overlaid(&format!("{key}:{own}"))?;
            }
        }
        text.clone_into(&mut self.text);
        Ok((settings, unused))
    }
}

//! `regraph plan`.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use regraph::driver::MemorySupport;
use regraph::engine::Config;
use regraph::plan::Costs;
use regraph::settings::Programmatic;
use regraph_cli::advice::{self, Comparison, Outcome};
use regraph_cli::mebibytes;
use regraph_cli::replay::Plan;
use regraph_cli::shell::drivers::{with_driver, Choice, Job};
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use regraph_sim::probe::Mapping;
use regraph_sim::SimConfig;
use regraph_tagged::Program;
use serde::Serialize;

use regraph_cli::shell::load::{self, load};

#[derive(Args)]
pub struct Arguments {
    /// Traces, JSON Lines in format v1; `-` is standard input.
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The device that is asked about; by default the GPU if the machine has one.
    #[arg(long, value_enum)]
    driver: Option<Choice>,
    /// What programmatic edges prove: auto, deny, lag or trust.
    #[arg(long, default_value_t, value_name = "PROOF")]
    programmatic: Programmatic,
    /// What one mapping takes, in microseconds; by default measured on the GPU, and without one what
    /// it took on an H200.
    #[arg(long, value_name = "MICROSECONDS", value_parser = microseconds)]
    mapping_us: Option<f64>,
    /// Advise a plan only if it saves so many percent of the memory that is held without one.
    #[arg(long, default_value_t = 5, value_name = "PERCENT")]
    worth_percent: u64,
    /// Leave a plan out that the host cannot use, such as learned where work runs in captures only: learned, exact or
    /// twice; may be given more than once.
    #[arg(long, value_parser = plan, value_name = "PLAN")]
    without: Vec<Plan>,
    /// Print a JSON object for the device and one for each trace.
    #[arg(long)]
    json: bool,
}

/// The most that a mapping may be said to take, in microseconds: a second.
const MOST_MICROSECONDS: f64 = 1e6;

fn microseconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=MOST_MICROSECONDS).contains(number));
    number.ok_or_else(|| {
        format!("expected a number of microseconds from 0 to {MOST_MICROSECONDS}, found `{text}`")
    })
}

/// A plan that may be left out: the others are compared with none.
fn plan(text: &str) -> Result<Plan, String> {
    let plan = Plan::from_str(text, false).ok().filter(|plan| *plan != Plan::None);
    plan.ok_or_else(|| format!("expected one of learned, exact, twice, found '{text}'"))
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    with_driver(arguments.driver, &Run { arguments })
}

struct Run<'a> {
    arguments: &'a Arguments,
}

/// What is known of a device before its first capture.
#[derive(Serialize)]
struct Device {
    driver: String,
    /// The unit of memory that can be mapped, in bytes; `None` where none can.
    granularity: Option<u64>,
    possible: Vec<Plan>,
    mapping_us: f64,
    /// Where that figure comes from.
    mapping_source: &'static str,
}

/// What a trace comes to, and the advice.
#[derive(Serialize)]
struct Summary<'a> {
    trace: &'a str,
    #[serde(flatten)]
    comparison: Comparison,
    advised: Plan,
    #[serde(skip)]
    device: &'a Device,
    #[serde(skip)]
    worth_percent: u64,
}

impl Job for Run<'_> {
    fn run<P: Program>(&self, driver: &Arc<P>, choice: Choice) -> Result<(), Failure> {
        let arguments = self.arguments;
        let traces = arguments.traces.iter().map(|path| Ok((load::name(path), load(path)?)));
        let traces: Vec<_> = traces.collect::<Result<_, Failure>>()?;
        let asked = |error| Failure::Other(format!("driver `{choice}`: {error}"));
        let total_bytes = driver.memory_info().map_err(asked)?.total;
        let like = SimConfig { total_bytes, support: driver.memory_support() };
        let mapping = match choice {
            Choice::Sim => None,
            Choice::Cuda => Mapping::measure(driver.as_ref()).map_err(asked)?,
        };
        let mut device = Device::new(choice, like.support, mapping, arguments.mapping_us);
        device.possible.retain(|plan| !arguments.without.contains(plan));
        self.print(&device)?;
        let config = Config::default().programmatic(arguments.programmatic);
        for (name, trace) in &traces {
            let spinner = progress::spinner(format!("running {name} with each plan"));
            let comparison = advice::compare(like, trace, &config, &device.possible)
                .map_err(|error| Failure::replay(name, &error))?;
            spinner.finish_and_clear();
            let worth_percent = arguments.worth_percent;
            let advised = comparison.advised(worth_percent).plan;
            let device = &device;
            let summary = Summary { trace: name, comparison, advised, device, worth_percent };
            self.print(&summary)?;
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Prints a part of the output as soon as it is known.
    fn print(&self, part: &(impl Serialize + fmt::Display)) -> io::Result<()> {
        let mut output = io::stdout().lock();
        if self.arguments.json {
            serde_json::to_writer(&mut output, part)?;
            writeln!(output)?;
        } else {
            writeln!(output, "{part}")?;
        }
        output.flush()
    }
}

impl Device {
    fn new(
        choice: Choice,
        support: MemorySupport,
        mapping: Option<Mapping>,
        given: Option<f64>,
    ) -> Self {
        let usual = Costs::default();
        let (mapping_us, mapping_source) = match (given, mapping) {
            (Some(given), _) => (given, "--mapping-us"),
            (None, Some(mapping)) => (mapping.time.as_secs_f64() * 1e6, "measured here"),
            (None, None) => {
                ((usual.map + usual.set_access).as_secs_f64() * 1e6, "measured on an H200")
            }
        };
        Self {
            driver: choice.to_string(),
            granularity: support.granularity(),
            possible: advice::possible(support).collect(),
            mapping_us,
            mapping_source,
        }
    }

    fn milliseconds(&self, mappings: u64) -> f64 {
        mappings as f64 * self.mapping_us / 1e3
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver, mapping_us, mapping_source, .. } = self;
        match self.granularity {
            Some(bytes) => writeln!(
                f,
                "device     {driver}: maps memory in units of {:.3} MiB; {mapping_us:.1} us a mapping \
                 ({mapping_source})",
                mebibytes(bytes.into())
            )?,
            None => writeln!(f, "device     {driver}: cannot map memory")?,
        }
        let possible: Vec<_> = self.possible.iter().map(Plan::to_string).collect();
        write!(f, "possible   {}", possible.join(", "))?;
        if self.granularity.is_some() && *mapping_us > 0.0 {
            let most = (1e3 / mapping_us).floor();
            write!(f, "; plan_max_mappings:{most} keeps a plan's mappings to a millisecond")?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, comparison, device, .. } = self;
        writeln!(f, "\ntrace      {trace}, captures: {}", comparison.captures)?;
        write!(f, "minimum    {:.1} MiB", mebibytes(comparison.minimum_bytes.into()))?;
        match comparison.minimum_unit_bytes {
            Some(bytes) => writeln!(f, ", {:.1} MiB in whole units", mebibytes(bytes.into()))?,
            None => writeln!(f)?,
        }
        writeln!(f, "plan       reserved MiB  mappings  mapping ms")?;
        for outcome in comparison.outcomes() {
            let &Outcome { reserved_bytes, mappings, .. } = outcome;
            writeln!(
                f,
                "{:<11}{:>12.1}{mappings:>10}{:>12.2}",
                outcome.plan.to_string(),
                mebibytes(reserved_bytes.into()),
                device.milliseconds(mappings)
            )?;
        }
        write!(f, "advice     {}", self.advice())
    }
}

impl Summary<'_> {
    fn advice(&self) -> String {
        let unplanned = self.comparison.unplanned();
        let advised = self.comparison.advised(self.worth_percent);
        let held = mebibytes(unplanned.reserved_bytes.into());
        if advised.plan == Plan::None {
            return format!("none: no plan saves {} % of {held:.1} MiB", self.worth_percent);
        }
        let saved = unplanned.reserved_bytes - advised.reserved_bytes;
        let cost = match advised.mappings.saturating_sub(unplanned.mappings) {
            0 => "without more mappings".to_owned(),
            more => format!("for {:.2} ms more of mappings", self.device.milliseconds(more)),
        };
        let all = if self.comparison.captures > 1 { " in all captures" } else { "" };
        format!(
            "{}: saves {:.1} of {held:.1} MiB {cost}{all}, by {}",
            advised.plan,
            mebibytes(saved.into()),
            advised.asks_for()
        )
    }
}

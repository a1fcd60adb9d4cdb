//! Settings: their text, their bounds, the environment, and the rounding of sizes.

use std::ffi::OsString;

use proptest::prelude::*;
use regraph::settings::{PlanChoice, Programmatic, Reuse};
use regraph::settings::{Rounding, Settings, SettingsError};

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;

fn parse(text: &str) -> Settings {
    Settings::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> SettingsError {
    Settings::parse(text).expect_err(text)
}

fn message(text: &str) -> String {
    error(text).to_string()
}

/// Divisions by interval, as a text gives them.
fn divisions(list: &str) -> [u64; 16] {
    parse(&format!("roundup_power2_divisions:{list}")).rounding.divisions()
}

/// The keys that a message lists.
fn keys() -> Vec<String> {
    let message = message("no_such_key:1");
    let (_, list) = message.split_once("the keys are ").expect("a list of keys");
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn nothing_is_the_default() {
    let settings = parse("");
    assert_eq!(settings, Settings::default());
    assert_eq!(parse(" \t\n"), settings);
    assert_eq!(settings.to_string(), "");
    assert_eq!(settings.max_split_bytes, None);
    assert_eq!(settings.max_non_split_rounding_bytes, 20 * MB);
    assert_eq!(settings.garbage_collection_threshold, None);
    assert_eq!(settings.rounding, Rounding::default());
    assert!(settings.expandable_segments && !settings.exportable);
    assert_eq!(settings.memory_fraction, None);
    assert_eq!(settings.memory_limit_bytes, None);
    assert_eq!(settings.plan, PlanChoice::None);
    assert_eq!(settings.plan_max_mappings, None);
    assert_eq!(settings.plan_max_piece_bytes, None);
    assert_eq!(settings.plan_max_share_percent, None);
    assert_eq!(settings.plan_pool_graphs, None);
    assert_eq!(settings.plan_search, 1);
    assert_eq!(settings.programmatic, Programmatic::Auto);
    assert_eq!(settings.reuse, Reuse::CrossStream);
    assert!(settings.check && settings.caching && !settings.stacks);
    assert_eq!(settings.history, 0);
}

#[test]
fn every_key_is_read_and_written() {
    let text = "max_split_size_mb:64,max_non_split_rounding_mb:32,\
                garbage_collection_threshold:0.8,\
                roundup_power2_divisions:[256:1,512:2,1024:4,>:8],expandable_segments:False,\
                exportable:True,per_process_memory_fraction:0.5,memory_limit_mb:40960,growth_step_mb:0,\
                plan:exact,plan_max_mappings:500,plan_max_piece_mb:2,plan_max_share_percent:10,\
                plan_pool_graphs:35,plan_search:16,\
                programmatic:lag,reuse:own_stream,check:False,early_reads:True,poison:True,history:100000,stacks:True,oom_dump:/tmp/oom-%p.json,nvtx:True,caching:False";
    let settings = parse(text);
    let rounding =
        Rounding::from_divisions([1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]).unwrap();
    let built = Settings::default()
        .max_split_bytes(Some(64 * MB))
        .max_non_split_rounding_bytes(32 * MB)
        .garbage_collection_threshold(Some(0.8))
        .rounding(rounding)
        .expandable_segments(false)
        .exportable(true)
        .memory_fraction(Some(0.5))
        .memory_limit_bytes(Some(40 * GB))
        .growth_step_bytes(Some(0))
        .plan(PlanChoice::Exact)
        .plan_max_mappings(Some(500))
        .plan_max_piece_bytes(Some(2 * MB))
        .plan_max_share_percent(Some(10))
        .plan_pool_graphs(Some(35))
        .plan_search(16)
        .programmatic(Programmatic::Lag)
        .reuse(Reuse::OwnStream)
        .check(false)
        .early_reads(true)
        .poison(true)
        .history(100_000)
        .stacks(true)
        .oom_dump(Some("/tmp/oom-%p.json".to_owned()))
        .nvtx(true)
        .caching(false);
    assert_eq!(settings, built);
    assert_eq!(built.to_string(), text);
    assert_eq!(text.parse(), Ok(built));
    for key in keys() {
        assert!(text.contains(&format!("{key}:")), "{key} is not tested here");
    }
}

#[test]
fn what_is_default_is_not_written() {
    let text = "expandable_segments:True,max_non_split_rounding_mb:20,check:True,history:0,\
                roundup_power2_divisions:1,reuse:cross_stream,plan:none";
    assert_eq!(parse(text).to_string(), "");
}

#[test]
fn white_space_and_a_last_comma_are_allowed() {
    let text = "\t max_split_size_mb : 64 ,\n roundup_power2_divisions : [ 256 : 1 , > : 4 , ] , ";
    let settings = parse(text);
    assert_eq!(settings.to_string(), "max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4]");
}

#[test]
fn policies_are_read_with_underscores_or_hyphens() {
    for (name, reuse) in [
        ("cross_stream", Reuse::CrossStream),
        ("cross-stream", Reuse::CrossStream),
        ("own_stream", Reuse::OwnStream),
        ("deferred", Reuse::Deferred),
    ] {
        assert_eq!(parse(&format!("reuse:{name}")).reuse, reuse);
    }
    for programmatic in Programmatic::ALL {
        assert_eq!(parse(&format!("programmatic:{programmatic}")).programmatic, *programmatic);
    }
    for plan in PlanChoice::ALL {
        assert_eq!(parse(&format!("plan:{plan}")).plan, *plan);
    }
    // Its former name.
    assert_eq!(parse("plan:learned").plan, PlanChoice::Auto);
}

#[test]
fn values_out_of_bounds_name_key_value_and_bounds() {
    for (text, found, expected) in [
        ("max_split_size_mb:19", "19", "MB from 20"),
        ("max_split_size_mb:64MB", "64MB", "whole number of MB"),
        ("max_split_size_mb:-1", "-1", "MB from 20"),
        ("max_split_size_mb:17592186044416", "17592186044416", "to 17592186044415"),
        ("max_split_size_mb:[64:1]", "[64:1]", "MB from 20"),
        ("max_non_split_rounding_mb:0", "0", "MB from 20"),
        ("garbage_collection_threshold:0", "0", "above 0 and below 1"),
        ("garbage_collection_threshold:1.0", "1.0", "above 0 and below 1"),
        ("garbage_collection_threshold:nan", "nan", "above 0 and below 1"),
        ("per_process_memory_fraction:0", "0", "above 0 and at most 1"),
        ("per_process_memory_fraction:1.01", "1.01", "above 0 and at most 1"),
        ("per_process_memory_fraction:inf", "inf", "above 0 and at most 1"),
        ("per_process_memory_fraction:half", "half", "above 0 and at most 1"),
        ("memory_limit_mb:0", "0", "MB from 1"),
        ("plan:True", "True", "none, auto or exact"),
        ("plan_max_mappings:0", "0", "mappings, at least 1"),
        ("plan_max_mappings:few", "few", "mappings, at least 1"),
        ("plan_max_piece_mb:0", "0", "MB from 1"),
        ("plan_max_piece_mb:0.5", "0.5", "MB from 1"),
        ("plan_max_share_percent:0", "0", "percent, at least 1"),
        ("plan_max_share_percent:2.5", "2.5", "percent, at least 1"),
        ("plan_pool_graphs:0", "0", "graphs, at least 1"),
        ("plan_search:0", "0", "number, at least 1"),
        ("programmatic:maybe", "maybe", "auto, deny, lag or trust"),
        ("reuse:all", "all", "cross_stream, own_stream or deferred"),
        ("history:-1", "-1", "events"),
        ("expandable_segments:true", "true", "True or False"),
        ("check:1", "1", "True or False"),
        ("stacks:no", "no", "True or False"),
        ("caching:off", "off", "True or False"),
        ("roundup_power2_divisions:3", "3", "power of two"),
        ("roundup_power2_divisions:0", "0", "power of two"),
    ] {
        let (name, value) = text.split_once(':').unwrap();
        match error(&format!("  {text}")) {
            SettingsError::Value { key, at: Some(at), found: shown, expected: allowed } => {
                assert_eq!((key, at), (name, name.len() + 3), "{text}");
                assert_eq!(shown, found, "{text}");
                assert!(allowed.contains(expected), "{text}: {allowed}");
            }
            other => panic!("{text}: {other}"),
        }
        let message = message(text);
        assert!(message.contains(name) && message.contains(value), "{message}");
    }
    let edges = "max_split_size_mb:20,per_process_memory_fraction:1,memory_limit_mb:1,\
                 plan_max_mappings:1,plan_max_piece_mb:1,plan_max_share_percent:1,\
                 plan_pool_graphs:1,\
                 max_non_split_rounding_mb:17592186044415,garbage_collection_threshold:1e-9";
    assert_eq!(parse(edges).memory_fraction, Some(1.0));
}

#[test]
fn messages_are_whole_sentences_of_what_is_wrong() {
    assert_eq!(
        message("check:False,max_split_size_mb:8"),
        "byte 30: `max_split_size_mb`: expected a whole number of MB from 20 to 17592186044415, \
         found `8`"
    );
    assert_eq!(
        message("check:True, check:True"),
        "byte 12: `check` stands here for the second time; once is allowed"
    );
    assert_eq!(
        message("backend:native"),
        "byte 0: `backend` is a key of PyTorch that means nothing here: there is one backend"
    );
    assert_eq!(message("check"), "byte 5: expected `:` and a value, found the end");
}

#[test]
fn unknown_keys_suggest_the_nearest_and_list_all() {
    for (found, likely) in [
        ("max_split_size", Some("max_split_size_mb")),
        ("max_spilt_size_mb", Some("max_split_size_mb")),
        ("expandable_segment", Some("expandable_segments")),
        ("roundup_power2_division", Some("roundup_power2_divisions")),
        ("memory_limit", Some("memory_limit_mb")),
        ("Check", Some("check")),
        // Alike in how they begin alone.
        ("plan_share", None),
        ("zzz", None),
    ] {
        let text = format!("history:1,{found}:64");
        let SettingsError::UnknownKey { at, key, nearest } = error(&text) else {
            panic!("{text}");
        };
        assert_eq!((at, key.as_str(), nearest), (10, found, likely));
    }
    let message = message("max_split_size:64");
    assert!(message.contains("did you mean `max_split_size_mb`?"), "{message}");
    assert_eq!(keys().len(), 25, "{message}");
}

#[test]
fn long_texts_are_cut_in_messages() {
    let long = "ü".repeat(10_000);
    for text in [format!("{long}:1"), format!("check:{long}"), format!("[{long}")] {
        assert!(message(&text).len() < 700, "{}", message(&text));
    }
}

#[test]
fn keys_of_pytorch_without_a_meaning_say_why() {
    for (text, why) in [
        ("backend:cudaMallocAsync", "one backend"),
        ("large_segment_size_mb:40", "segments"),
        ("release_lock_on_cudamalloc:True", "locks"),
        ("release_lock_on_hipmalloc:True", "locks"),
        ("graph_capture_record_stream_reuse:True", "`reuse`"),
        ("throw_on_cudamalloc_oom:True", "fails"),
        ("expandable_segments_reserve:40G", "addresses"),
        ("expandable_segments_reserve_by_class:[a:0.5]", "addresses"),
        ("pinned_use_cuda_host_register:True", "host memory"),
        ("pinned_num_register_threads:8", "host memory"),
        ("pinned_use_background_threads:True", "host memory"),
        ("pinned_reserve_segment_size_mb:1", "host memory"),
        ("pinned_max_round_threshold_mb:1", "host memory"),
        ("pinned_max_cached_size_mb:1", "host memory"),
        ("pinned_free_catch_all:True", "host memory"),
    ] {
        let found = error(text);
        let SettingsError::PyTorchOnly { at: 0, key, reason } = &found else {
            panic!("{text}: {found}");
        };
        assert!(text.starts_with(key.as_str()) && reason.contains(why), "{found}");
        assert!(found.to_string().contains("PyTorch"), "{found}");
    }
}

#[test]
fn texts_of_another_form_say_where() {
    for (text, place, wanted) in [
        (",", 0, "a key"),
        ("check:True,,stacks:True", 11, "a key"),
        (":True", 0, "a key"),
        ("check", 5, "`:`"),
        ("check=True", 0, ""),
        ("check:", 6, "a value"),
        ("check:,", 6, "a value"),
        ("check:]", 6, "a value"),
        ("check::True", 6, "a value"),
        ("check:True stacks:True", 11, "`,`"),
        ("check:True:", 10, "`,`"),
        ("roundup_power2_divisions:[", 26, "a key of the list"),
        ("roundup_power2_divisions:[256", 29, "`:`"),
        ("roundup_power2_divisions:[256]", 29, "`:`"),
        ("roundup_power2_divisions:[256:", 30, "a value"),
        ("roundup_power2_divisions:[256:1", 31, "`]`"),
        ("roundup_power2_divisions:[256:1,,", 32, "a key of the list"),
        ("roundup_power2_divisions:[256:[1:2]]", 30, "a value"),
        ("roundup_power2_divisions:[256:1]]", 32, "`,`"),
    ] {
        match error(text) {
            SettingsError::Form { at, expected, .. } => {
                assert_eq!(at, place, "{text}");
                assert!(expected.contains(wanted), "{text}: {expected}");
            }
            SettingsError::UnknownKey { at, .. } => assert_eq!((at, wanted), (place, ""), "{text}"),
            other => panic!("{text}: {other}"),
        }
    }
}

#[test]
fn lists_of_divisions_mean_what_they_mean_in_pytorch() {
    // The first key also holds below it, what is not named is off, `>` holds above the last key.
    assert_eq!(divisions("8"), [8; 16]);
    assert_eq!(divisions("[]"), [1; 16]);
    assert_eq!(divisions("[4:2]"), [2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(divisions("[4:2,16:8]"), [2, 2, 2, 1, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(divisions("[1:0,>:4]"), [1, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
    let documented = [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8];
    assert_eq!(divisions("[256:1,512:2,1024:4,>:8]"), documented);
    // Any order; later pairs overwrite.
    assert_eq!(divisions("[64:8,8:4,>:2]"), [8, 8, 8, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(divisions("[1:2,>:4,4:8]"), [2, 4, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
    // The last interval has two names.
    assert_eq!(divisions("[16384:1,65536:4]")[14..], [1, 4]);
    assert_eq!(divisions("[16384:1,32768:4]")[14..], [1, 4]);
    assert_eq!(divisions("[65536:4,>:2]"), [4; 16]);
}

#[test]
fn wrong_lists_of_divisions_say_which_part() {
    for (list, part, wanted) in [
        ("[256:3]", "3", "power of two"),
        ("[256:x]", "x", "power of two"),
        ("[100:2]", "100", "from 1 to 65536"),
        ("[0:2]", "0", "from 1 to 65536"),
        ("[131072:2]", "131072", "from 1 to 65536"),
        ("[<:2]", "<", "from 1 to 65536"),
        ("[>:2]", ">", "before `>`"),
        ("[4:2,4:1]", "4", "given before"),
        ("[32768:2,65536:1]", "65536", "given before"),
    ] {
        let text = format!("roundup_power2_divisions:{list}");
        match error(&text) {
            SettingsError::Value { at: Some(at), found, expected, .. } => {
                assert_eq!(found, part, "{text}");
                assert!(text[at..].starts_with(part), "{text}: byte {at}");
                assert!(expected.contains(wanted), "{text}: {expected}");
            }
            other => panic!("{text}: {other}"),
        }
    }
}

#[test]
fn sizes_are_rounded_to_even_steps() {
    let off = Rounding::default();
    for (bytes, rounded) in [
        (0, 512),
        (1, 512),
        (512, 512),
        (513, 1024),
        (MB + 1, MB + 512),
        ((1 << 60) - 1, 1 << 60),
        (1 << 60, 1 << 60),
    ] {
        assert_eq!(off.round(bytes), rounded, "{bytes}");
    }
    let four = Rounding::uniform(4).unwrap();
    for (bytes, rounded) in [
        (0, 512),
        (1200, 1536),
        (2048, 2048),
        (2049, 2560),
        (5000, 5120),
        (MB, MB),
        (MB + 1, MB + MB / 4),
        (2 * MB - 1, 2 * MB),
        (100 * GB, 112 * GB),
        ((1 << 59) + 1, (1 << 59) + (1 << 57)),
        (1 << 60, 1 << 60),
    ] {
        assert_eq!(four.round(bytes), rounded, "{bytes}");
    }
    let by_size = parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").rounding;
    for (bytes, rounded) in [
        (3 * MB + 1, 3 * MB + 512),
        (300 * MB + 1, 300 * MB + 512),
        (512 * MB + 1, 768 * MB),
        (GB + 1, GB + GB / 4),
        (2 * GB + 1, 2 * GB + GB / 4),
        (64 * GB + 1, 72 * GB),
    ] {
        assert_eq!(by_size.round(bytes), rounded, "{bytes}");
    }
    assert_eq!(Rounding::uniform(1), Some(off));
    assert_eq!(Rounding::uniform(0), None);
    assert_eq!(Rounding::uniform(6), None);
}

#[test]
fn fields_set_in_code_can_be_validated() {
    let default = Settings::default();
    assert_eq!(default.validate(), Ok(()));
    for settings in [
        default.clone().max_split_bytes(Some(20 * MB - 1)),
        default.clone().max_non_split_rounding_bytes(0),
        default.clone().garbage_collection_threshold(Some(1.0)),
        default.clone().garbage_collection_threshold(Some(f64::NAN)),
        default.clone().memory_fraction(Some(0.0)),
        default.clone().memory_fraction(Some(1.5)),
        default.clone().memory_limit_bytes(Some(MB - 1)),
        default.clone().plan_max_mappings(Some(0)),
        default.clone().plan_max_piece_bytes(Some(MB - 1)),
        default.clone().plan_max_share_percent(Some(0)),
        default.clone().plan_pool_graphs(Some(0)),
        default.clone().plan_search(0),
    ] {
        let found = settings.validate().expect_err("out of bounds");
        assert!(matches!(found, SettingsError::Value { at: None, .. }), "{found}");
        assert!(!found.to_string().contains("byte"), "{found}");
        assert!(Settings::parse(&settings.to_string()).is_err(), "{settings}");
    }
}

#[test]
fn the_environment_holds_text_and_a_switch() {
    let read = |conf: Option<&str>, switch: Option<&str>| {
        Settings::from_variables(|name| {
            let value = match name {
                "REGRAPH_ALLOC_CONF" => conf,
                "REGRAPH_NO_MEMORY_CACHING" => switch,
                _ => panic!("{name} is not a variable of ours"),
            };
            value.map(OsString::from)
        })
    };
    assert_eq!(read(None, None), Ok(Settings::default()));
    assert_eq!(read(Some(""), Some("")), Ok(Settings::default()));
    assert_eq!(read(None, Some("0")), Ok(Settings::default()));
    assert_eq!(read(None, Some("1")), Ok(Settings::default().caching(false)));
    assert_eq!(
        read(Some("history:5,caching:True"), Some("1")),
        Ok(Settings::default().history(5).caching(false))
    );
    assert_eq!(read(Some("caching:False"), Some("0")), Ok(Settings::default().caching(false)));

    let wrong = read(Some("histroy:5"), None).expect_err("unknown key").to_string();
    assert!(wrong.starts_with("REGRAPH_ALLOC_CONF: byte 0: unknown key `histroy`"), "{wrong}");
    let wrong = read(None, Some("yes")).expect_err("neither 0 nor 1").to_string();
    assert_eq!(
        wrong,
        "REGRAPH_NO_MEMORY_CACHING: expected 1 (no caching), 0 or nothing, found `yes`"
    );
}

#[cfg(unix)]
#[test]
fn variables_that_are_not_text_are_an_error() {
    use std::os::unix::ffi::OsStringExt;

    let found = Settings::from_variables(|name| {
        (name == "REGRAPH_ALLOC_CONF").then(|| OsString::from_vec(b"check:\xff".to_vec()))
    });
    let found = found.expect_err("not UTF-8").to_string();
    assert!(found.starts_with("REGRAPH_ALLOC_CONF: expected UTF-8 text"), "{found}");
}

/// The definition, step by step.
fn defined(divisions: [u64; 16], bytes: u64) -> u64 {
    let bytes = u128::from(bytes.max(1));
    let floor = 1_u128 << bytes.ilog2();
    let interval = (bytes / u128::from(MB)).checked_ilog2().unwrap_or(0).min(15);
    let each = u128::from(divisions[interval as usize]);
    let rounded = if each > 1 && bytes > 512 * each {
        floor + ((bytes - floor) * each).div_ceil(floor) * (floor / each)
    } else {
        bytes.next_multiple_of(512)
    };
    u64::try_from(rounded).expect("at most 2^60")
}

fn any_rounding() -> impl Strategy<Value = Rounding> {
    // Runs of equal divisions are what the text is short for.
    let power = prop_oneof![3 => Just(0_u32), 3 => 0..6_u32, 1 => 0..64_u32];
    let runs = prop::collection::vec((1..8_usize, power), 1..16);
    runs.prop_map(|runs| {
        let mut logs = runs.iter().flat_map(|&(count, log)| vec![log; count]).cycle();
        let divisions = std::array::from_fn(|_| 1 << logs.next().expect("endless"));
        Rounding::from_divisions(divisions).expect("powers of two")
    })
}

fn any_bytes() -> impl Strategy<Value = u64> {
    let near_powers = (0..=60_u32, -600..=600_i64)
        .prop_map(|(log, off)| (1_u64 << log).saturating_add_signed(off).min(1 << 60));
    prop_oneof![0..=1_u64 << 60, near_powers, 0..=64 * GB, 0..=MB]
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let sizes = (
        prop::option::of(20..1_u64 << 44),
        20..1_u64 << 44,
        prop::option::of(1..1_u64 << 44),
        any_rounding(),
    );
    let shares = (
        prop::option::of(1e-12..1.0_f64),
        prop::option::of(prop_oneof![Just(1.0), 1e-12..=1.0_f64]),
    );
    let names =
        (prop::sample::select(Programmatic::ALL), prop::sample::select(Reuse::ALL), any::<usize>());
    let plans = (
        prop::sample::select(PlanChoice::ALL),
        prop::option::of(1..=u64::MAX),
        prop::option::of(1..1_u64 << 44),
        prop::option::of(1..=u64::MAX),
        prop::option::of(1..=u64::MAX),
        1..=usize::MAX,
    );
    let all = (sizes, shares, names, plans, any::<[bool; 7]>());
    all.prop_map(|(sizes, shares, names, plans, flags)| {
        Settings::default()
            .max_split_bytes(sizes.0.map(|size| size * MB))
            .max_non_split_rounding_bytes(sizes.1 * MB)
            .memory_limit_bytes(sizes.2.map(|size| size * MB))
            .rounding(sizes.3)
            .garbage_collection_threshold(shares.0)
            .memory_fraction(shares.1)
            .plan(plans.0)
            .plan_max_mappings(plans.1)
            .plan_max_piece_bytes(plans.2.map(|size| size * MB))
            .plan_max_share_percent(plans.3)
            .plan_pool_graphs(plans.4)
            .plan_search(plans.5)
            .programmatic(names.0)
            .reuse(names.1)
            .history(names.2)
            .expandable_segments(flags[0])
            .check(flags[1])
            .stacks(flags[2])
            .caching(flags[3])
            .exportable(flags[4])
            .early_reads(flags[5])
            .poison(flags[6])
    })
}

/// Texts that come near the grammar.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![",", ":", "[", "]", ">", " ", "True", "1", "64", "0.5", "é"])
            .prop_map(str::to_owned),
        2 => prop::sample::select(keys()),
        1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(settings in any_settings()) {
        prop_assert_eq!(settings.validate(), Ok(()));
        let text = settings.to_string();
        prop_assert_eq!(Settings::parse(&text), Ok(settings), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused_at_a_place_in_it(text in any_text()) {
        match Settings::parse(&text) {
            Ok(settings) => {
                prop_assert_eq!(Settings::parse(&settings.to_string()), Ok(settings));
            }
            Err(SettingsError::UnknownKey { at, .. }
                | SettingsError::Form { at, .. }
                | SettingsError::DuplicateKey { at, .. }
                | SettingsError::Value { at: Some(at), .. }) => {
                prop_assert!(text.is_char_boundary(at));
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn rounding_is_as_defined(rounding in any_rounding(), bytes in any_bytes()) {
        prop_assert_eq!(rounding.round(bytes), defined(rounding.divisions(), bytes));
    }

    #[test]
    fn rounding_never_panics(rounding in any_rounding(), bytes in any::<u64>()) {
        rounding.round(bytes);
        rounding.round(u64::MAX - (bytes >> 32));
    }
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    let text = ",".repeat(regraph::settings::TEXT_LIMIT + 1);
    let message = Settings::parse(&text).unwrap_err().to_string();
    assert_eq!(message, "expected at most 65536 bytes, found 65537");
}

/// Texts for PyTorch: the last value of a key counts, and what means nothing here is named.
#[test]
fn texts_for_pytorch_lie_over_settings() {
    let base = Settings::parse("check:False,max_split_size_mb:32").unwrap();
    let text = "max_split_size_mb:64,backend:native,max_split_size_mb:128,\
                pinned_reserve_segment_size_mb:4,expandable_segments_reserve_by_class:[a,b:[c],\
                roundup_power2_divisions:[256:1,>:4],";
    let (settings, unused) = base.clone().overlaid_by_pytorch(text).unwrap();
    assert_eq!(settings.max_split_bytes, Some(128 << 20));
    assert_eq!(settings.rounding.round(600 << 20), 640 << 20);
    assert!(!settings.check);
    assert_eq!(
        unused,
        ["backend", "pinned_reserve_segment_size_mb", "expandable_segments_reserve_by_class"]
    );
    for wrong in ["nonsense:1", "max_split_size_mb:1", "backend", "backend:[a", "backend:a:b"] {
        assert!(base.clone().overlaid_by_pytorch(wrong).is_err(), "{wrong}");
    }
    // One's own text goes over it.
    let own = settings.overlaid("max_split_size_mb:256").unwrap();
    assert_eq!((own.max_split_bytes, own.check), (Some(256 << 20), false));
}

/// A text for PyTorch sets back what PyTorch sets back, and leaves the rest; a text that is put back has the settings of
/// before.
#[test]
fn texts_for_pytorch_change_settings_as_there() {
    let own = |base: Settings| {
        base.overlaid("max_split_size_mb:256,max_non_split_rounding_mb:40,memory_limit_mb:64")
    };
    let start = "expandable_segments:False,max_split_size_mb:512,backend:native";
    let (mut said, first, unused) = regraph_plugin::Overlay::new(start, own).unwrap();
    assert_eq!((unused, said.text()), (vec!["backend".to_owned()], start));
    let expected = own(regraph_plugin::of_hosts()).unwrap().expandable_segments(false);
    assert_eq!(first, expected, "one's own go over what is said for PyTorch at the start");
    // As the plug-in has it.
    let first = first.growth_step_bytes(None);
    // As engines change one key: the whole text with it behind, and the old one again, without what is the door's.
    let mut change = |now: &Settings, text: &str| said.change(now.clone(), text);
    let (limited, _) = change(&first, &format!("{start},max_split_size_mb:20")).unwrap();
    assert_eq!(limited, first.clone().max_split_bytes(Some(20 * MB)), "later it counts");
    let again = "expandable_segments:False,max_split_size_mb:512";
    assert_eq!(change(&limited, again).unwrap(), (first.clone(), vec![]));
    let wrong = change(&first, "max_split_size_mb:1").unwrap_err().to_string();
    assert!(wrong.contains("max_split_size_mb"), "{wrong}");
    // What four keys say goes with the next text that leaves them out.
    let go = "max_split_size_mb:64,max_non_split_rounding_mb:20,roundup_power2_divisions:4,\
              garbage_collection_threshold:0.5";
    let stay = "expandable_segments:True,per_process_memory_fraction:0.5";
    let (both, _) = change(&first, &format!("{go},{stay}")).unwrap();
    let counts = (both.garbage_collection_threshold, both.max_non_split_rounding_bytes);
    assert_eq!(counts, (Some(0.5), 20 * MB), "what the first text did not say counts, too");
    let expected = first.expandable_segments(true).memory_fraction(Some(0.5));
    assert_eq!(change(&both, "history:0").unwrap().0, expected);
    assert_eq!(said.text(), "history:0");
}

/// The table that users of the Python package read names each key, with what it is where nothing is said.
#[test]
fn pythons_table_of_settings_is_true() {
    let path = format!("{}/python/README.md", crate::ROOT);
    let readme = std::fs::read_to_string(path).unwrap();
    let (_, table) = readme.split_once("| Key | Default | Meaning |").expect("a table of settings");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| `"));
    let told: Vec<(String, String)> = rows
        .map(|row| {
            let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
            let key = cells.next().unwrap().trim_matches('`');
            let default = cells.next().unwrap();
            let value = default.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
            // Words stand for what the text cannot say.
            (key.to_owned(), value.unwrap_or_default().to_owned())
        })
        .collect();
    let settings = regraph_plugin::of_hosts();
    let values: Vec<_> = settings.values().map(|(key, value)| (key.to_owned(), value)).collect();
    assert_eq!(told, values);
}

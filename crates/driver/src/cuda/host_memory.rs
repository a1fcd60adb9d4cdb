//! How much memory of the host this process may have, as Linux tells it.

use std::path::{Component, Path, PathBuf};

/// The least of the machine's memory and of the limits of the process's memory cgroups, in bytes.
pub(super) fn of_process() -> Option<u64> {
    least(&read, "MemTotal:", limit)
}

/// How much more memory the process may take before the system has to take some away from others, or ends a process:
/// the least of what the machine has available and of what the limits of the memory cgroups leave, in bytes.
#[cfg(target_os = "linux")]
pub(super) fn available() -> Option<u64> {
    least(&read, "MemAvailable:", left)
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Reads a file.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

fn least(read: Read<'_>, field: &str, of_group: fn(&Group<'_>) -> Option<u64>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| kibibytes(&text, field));
    let lines = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let groups = lines.lines().flat_map(|line| groups(line, read));
    machine.into_iter().chain(groups.filter_map(|group| of_group(&group))).min()
}

/// A field of the text of `/proc/meminfo`, in bytes.
fn kibibytes(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The names of a memory cgroup's files in a version of cgroups.
#[derive(Clone, Copy)]
struct Names {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Of what is used, what the system takes back at once: a field of `memory.stat`.
    spare: &'static str,
}

const VERSION_1: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    spare: "total_inactive_file ",
};
const VERSION_2: Names = Names {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    spare: "inactive_file ",
};

/// A memory cgroup.
struct Group<'a> {
    folder: PathBuf,
    names: Names,
    read: Read<'a>,
}

impl Group<'_> {
    fn text(&self, file: &str) -> Option<String> {
        (self.read)(&self.folder.join(file))
    }

    fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.trim().parse().ok()
    }
}

/// "max", as version 2 writes where there is no limit, is no number.
fn limit(group: &Group<'_>) -> Option<u64> {
    group.number(group.names.limit)
}

/// What a group's limit leaves; nothing where it is not known how much is used.
#[cfg(any(test, target_os = "linux"))]
fn left(group: &Group<'_>) -> Option<u64> {
    let limit = limit(group)?;
    let spare = |text: String| {
        text.lines().find_map(|line| line.strip_prefix(group.names.spare))?.trim().parse().ok()
    };
    let spare: u64 = group.text("memory.stat").and_then(spare).unwrap_or(0);
    let used = group.number(group.names.used).unwrap_or(u64::MAX);
    Some(limit.saturating_sub(used.saturating_sub(spare)))
}

/// A group and those that it lies in, by its line in `/proc/self/cgroup`: `0::PATH` in version 2,
/// `NUMBER:CONTROLLERS:PATH` in version 1. None of a group that limits no memory.
fn groups<'a>(line: &str, read: Read<'a>) -> Vec<Group<'a>> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let names = match controllers {
        "" => VERSION_2,
        some if some.split(',').any(|it| it == "memory") => VERSION_1,
        _ => return Vec::new(),
    };
    // In a container the path may lead out of what is mounted; the mounted root is the container's then.
    let parts = Path::new(path).components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut folder = PathBuf::from(names.root);
    let mut groups = vec![Group { folder: folder.clone(), names, read }];
    for part in parts {
        folder.push(part);
        groups.push(Group { folder: folder.clone(), names, read });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::{kibibytes, least, limit};
    use std::path::Path;

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal:       65536 kB\nMemFree: 1 kB\n");

    fn of(files: &[(&str, &str)]) -> Option<u64> {
        least(&reader(files), "MemTotal:", limit)
    }

    fn left(files: &[(&str, &str)]) -> Option<u64> {
        least(&reader(files), "MemFree:", super::left)
    }

    fn reader<'a>(files: &'a [(&str, &str)]) -> impl Fn(&Path) -> Option<String> + 'a {
        |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn the_machines_memory_counts_where_no_group_limits_it() {
        assert_eq!(kibibytes("MemTotal: 3 kB", "MemTotal:"), Some(3072));
        assert_eq!(kibibytes("MemTotal: x", "MemTotal:"), None);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[MEMINFO]), Some(64 << 20));
        let free = [
            MEMINFO,
            ("/proc/self/cgroup", "0::/user.slice\n"),
            ("/sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ];
        assert_eq!(of(&free), Some(64 << 20));
    }

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let second = [
            MEMINFO,
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/memory.max", "1048576\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "2097152\n"),
        ];
        assert_eq!(of(&second), Some(1 << 20));
        let first = [
            MEMINFO,
            ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/12\n0::/\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096"),
            ("/sys/fs/cgroup/memory/docker/12/memory.limit_in_bytes", "9223372036854771712"),
        ];
        assert_eq!(of(&first), Some(4096));
        // A path that leads out of the container's mounted root.
        let outside = [
            MEMINFO,
            ("/proc/self/cgroup", "0::/../../pod\n"),
            ("/sys/fs/cgroup/memory.max", "8192"),
        ];
        assert_eq!(of(&outside), Some(8192));
    }

    #[test]
    fn what_the_system_takes_back_at_once_is_left_too() {
        assert_eq!(left(&[MEMINFO]), Some(1024));
        let second = |used, stat| {
            left(&[
                ("/proc/self/cgroup", "0::/a\n"),
                ("/sys/fs/cgroup/a/memory.max", "1000\n"),
                ("/sys/fs/cgroup/a/memory.current", used),
                ("/sys/fs/cgroup/a/memory.stat", stat),
            ])
        };
        assert_eq!(second("600\n", "file 9\ninactive_file 200\n"), Some(600));
        assert_eq!(second("600\n", ""), Some(400));
        assert_eq!(second("1200\n", "inactive_file 100\n"), Some(0));
        // What is not known leaves nothing.
        assert_eq!(second("x", "inactive_file 100\n"), Some(0));
        let first = [
            ("/proc/self/cgroup", "4:memory:/b\n"),
            ("/sys/fs/cgroup/memory/b/memory.limit_in_bytes", "1000"),
            ("/sys/fs/cgroup/memory/b/memory.usage_in_bytes", "900"),
            ("/sys/fs/cgroup/memory/b/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n"),
        ];
        assert_eq!(left(&first), Some(150));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_tells_its_memory() {
        assert!(super::of_process().is_some_and(|bytes| bytes > 1 << 20));
    }
}

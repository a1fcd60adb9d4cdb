//! How much memory of the host this process may have, as Linux tells it.

use std::path::{Component, Path};

/// The least of the machine's memory and of the limits of the process's memory cgroups, in bytes.
pub(super) fn of_process() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    least(read)
}

fn least(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits(line, &read)).min();
    machine.into_iter().chain(limits).min()
}

/// The machine's memory, in bytes, by the text of `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The limits of a group and of those that it lies in, by its line in `/proc/self/cgroup`: `0::PATH` in version 2,
/// `NUMBER:CONTROLLERS:PATH` in version 1. None of a group that limits no memory, and none of one whose folder is not
/// mounted.
fn limits(line: &str, read: &impl Fn(&Path) -> Option<String>) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        some if some.split(',').any(|it| it == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    // In a container the path may lead out of what is mounted; the mounted root is the container's then.
    let names = Path::new(path).components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut folder = Path::new(root).to_path_buf();
    let mut folders = vec![folder.clone()];
    for name in names {
        folder.push(name);
        folders.push(folder.clone());
    }
    // "max", as version 2 writes where there is no limit, is no number.
    let limit = |folder: &Path| read(&folder.join(file))?.trim().parse().ok();
    folders.iter().filter_map(|folder| limit(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::{least, total};
    use std::path::Path;

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal:       65536 kB\nMemFree: 1 kB\n");

    fn of(files: &[(&str, &str)]) -> Option<u64> {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        least(read)
    }

    #[test]
    fn the_machines_memory_counts_where_no_group_limits_it() {
        assert_eq!(total("MemTotal: 3 kB"), Some(3072));
        assert_eq!(total("MemTotal: x"), None);
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

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_tells_its_memory() {
        assert!(super::of_process().is_some_and(|bytes| bytes > 1 << 20));
    }
}

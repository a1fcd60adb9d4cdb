//! What the begin and the end of a capture ask of the driver, as PyTorch calls the plug-in.

use super::host::{host_with, Host};
use crate::common::MIB;
use regraph::driver::{HostApi, StreamHandle};
use regraph::engine::Config;
use regraph_sim::Call;

impl Host {
    /// A capture as `torch.cuda.CUDAGraph` makes it, with a pool of its own.
    fn capture_alone(&self, stream: StreamHandle, body: impl FnOnce(&Self)) {
        let key = self.plugin.name_pool();
        // Its random generator's state.
        let state = [(); 2].map(|()| self.plugin.allocate(8, 0, stream).unwrap());
        self.launch(stream);
        self.announce(stream, key, true);
        body(self);
        self.plugin.capture_ending(0, stream, |_, _| ()).unwrap();
        let graph = self.end(stream, key);
        let executable = self.driver.instantiate(graph).unwrap();
        self.driver.destroy_graph(graph).unwrap();
        self.plugin.capture_ended(0, stream).unwrap();
        self.driver.destroy_executable(executable).unwrap();
        self.plugin.release_pool(0, key).unwrap();
        state.into_iter().for_each(|state| self.plugin.free(state, 0).unwrap());
        self.driver.complete_all();
    }

    /// Calls of each sort that a capture makes.
    fn counted(&self, stream: StreamHandle, body: impl FnOnce(&Self)) -> Vec<(Call, u64)> {
        let before: Vec<_> = Call::ALL.iter().map(|&call| self.driver.calls(call)).collect();
        self.capture_alone(stream, body);
        let after = Call::ALL.iter().map(|&call| self.driver.calls(call));
        let counts = Call::ALL.iter().copied().zip(after.zip(before).map(|(a, b)| a - b));
        counts.filter(|&(_, count)| count > 0).collect()
    }
}

/// A capture maps, unmaps, records and waits for nothing that it does not need.
#[test]
fn a_capture_makes_no_call_in_vain() {
    let h = host_with(Config::default().find_late_uses(false));
    let [s, t] = [(); 2].map(|()| h.driver.create_stream().unwrap());
    // Work outside captures, before and between.
    let mut kept = Vec::new();
    for round in 0..20 {
        for stream in [s, t] {
            for mib in [1, 2, 20] {
                let block = h.plugin.allocate(mib * MIB, 0, stream).unwrap();
                h.launch(stream);
                if round % 2 == 0 {
                    kept.push(block);
                } else {
                    h.plugin.free(block, 0).unwrap();
                }
            }
        }
    }
    h.driver.complete_all();
    for _ in 0..20 {
        h.capture_alone(s, |h| {
            let block = h.plugin.allocate(MIB, 0, s).unwrap();
            h.launch(s);
            h.plugin.free(block, 0).unwrap();
        });
    }
    use Call::{CaptureStatus, Create, Dependencies, Map, Nodes, Reserve, SetAccess};
    // Of the status, six calls are about the state of the random generator.
    let asked = [(CaptureStatus, 8), (Nodes, 1)];
    assert_eq!(h.counted(s, |_| ()), asked);
    // When it is looked at, and by the checker.
    let node = [(CaptureStatus, 8), (Dependencies, 2), (Nodes, 1)];
    assert_eq!(h.counted(s, |h| h.launch(s)), node);
    let with_memory = [
        (CaptureStatus, 10),
        (Dependencies, 2),
        (Nodes, 1),
        (Reserve, 1),
        (Create, 1),
        (Map, 1),
        (SetAccess, 1),
    ];
    for mib in [1, 20] {
        let found = h.counted(s, |h| {
            let block = h.plugin.allocate(mib * MIB, 0, s).unwrap();
            h.launch(s);
            h.plugin.free(block, 0).unwrap();
        });
        assert_eq!(found, with_memory);
    }
}

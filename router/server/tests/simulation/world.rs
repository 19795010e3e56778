//! One seed: a random world, faults for a while, then calm until everything open has ended, then a drain.

use crate::client::{Client, End, Hold, Reader};
use crate::launcher::Launcher;
use crate::random::{Random, mix};
use crate::totals::Totals;
use crate::worker::{Fault, VOCAB, Worker};
use futures::FutureExt;
use headrace_control::{Progress, ToRouter};
use headrace_router::engine::core::{
    Effect, EngineCore, EngineEnd, GroupFacts, Input, StartFailure,
};
use headrace_router::engine::{
    CommandQueue, DeskOrder, EngineConfig, EngineHandle, Interruption, MaskDesk, SubmitFailure,
};
use headrace_router::metrics::Metrics;
use headrace_scheduler::{
    GroupId, SamplingParams, SequenceFailure, SequenceId, SequenceRequest, StepOutcome, StepResult,
    StopConditions, SubmitError, Time, TokenId,
};
use headrace_worker_client::{GroupDescription, StepReport, StepTimings};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

mod calm;
mod setup;
mod workers;

/// The workers, as they are and not as the engine sees them.
enum Group {
    Down,
    Starting { epoch: u64, at: Time },
    Up { epoch: u64, worker: Box<Worker> },
}

/// Chances in a hundred, a tick.
struct Chances {
    arrive: usize,
    leave: usize,
    answer: usize,
    step_fault: usize,
    row_fault: usize,
    death: usize,
    hang: usize,
    double: usize,
    failed_start: usize,
    drain: usize,
    flush: usize,
    jump: usize,
    poison: usize,
    final_loss: usize,
}

struct World {
    random: Random,
    config: EngineConfig,
    num_blocks: u32,
    chances: Chances,
    core: EngineCore,
    handle: EngineHandle,
    commands: CommandQueue,
    launcher: Launcher,
    desk: MaskDesk,
    /// What the desk has not looked at yet.
    orders: VecDeque<DeskOrder>,
    group: Group,
    /// Workers of dead starts that may still have something to say.
    stale: Vec<(u64, Worker)>,
    clients: BTreeMap<SequenceId, Client>,
    /// Those whose leaving the engine has heard of: no new step names them.
    forgotten: BTreeSet<SequenceId>,
    /// Nothing answers.
    hung: bool,
    /// The workers' last message.
    heard: Time,
    /// Long outputs, so that buffers fill.
    long: bool,
    draining: Option<Time>,
    lost: bool,
    end: Option<EngineEnd>,
    now: Time,
    totals: Totals,
    trace: u64,
}

pub(crate) fn run(seed: u64) -> Totals {
    let mut world = World::new(seed);
    let busy = if world.long {
        world.random.between(400, 900)
    } else {
        world.random.between(20, 150)
    };
    for _ in 0..busy {
        world.tick();
        if world.end.is_some() {
            break;
        }
    }
    world.calm();
    let mut totals = world.totals;
    totals.trace = world.trace;
    totals
}

impl World {
    fn tick(&mut self) {
        let micros = self.random.next() % 2000;
        self.pass(Duration::from_micros(micros));
        self.advance_group();
        if self.random.percent(self.chances.arrive) {
            self.arrive();
        }
        if self.random.percent(self.chances.leave) {
            self.leave();
        }
        if self.random.percent(80) {
            self.feed_commands();
        }
        self.read(false);
        if self.draining.is_none() && self.random.percent(self.chances.drain) {
            self.drain();
        }
        if self.random.percent(self.chances.final_loss) && !self.lost {
            self.lose_for_good();
        }
        if self.random.percent(10) {
            self.late_answer();
        }
        if self.random.percent(self.chances.flush) {
            self.totals.flushes += 1;
            // The answer comes with a later turn; nobody waits for it here.
            let _ = self.handle.flush_cache().now_or_never();
        }
        if self.random.percent(self.chances.jump) && !self.hung {
            // Long enough for who reads nothing; the workers were heard meanwhile.
            self.pass(Duration::from_millis(1500));
            self.heard = self.now;
            self.watchdog();
        }
        let orders = self.random.between(0, 4);
        self.serve_desk(orders);
        self.work();
        if self.random.percent(20) {
            self.watchdog();
        }
        self.check();
    }

    fn pass(&mut self, time: Duration) {
        self.now.0 += time;
    }

    /// One input, as the engine's loop does it.
    fn feed(&mut self, input: Input) {
        if self.end.is_some() {
            return;
        }
        self.core.take(self.now, input);
        self.turn();
    }

    /// The rest of a turn of the engine's loop.
    fn turn(&mut self) {
        self.core.plan(self.now);
        self.act();
        self.core.tell(self.now);
        self.act();
    }

    fn feed_commands(&mut self) {
        let mut any = false;
        while let Some(command) = self.commands.try_next() {
            if self.end.is_some() {
                continue;
            }
            any = true;
            self.core.take(self.now, Input::Command(command));
        }
        if any {
            let left = self
                .clients
                .iter()
                .filter(|(_, client)| client.end == Some(End::Left));
            self.forgotten.extend(left.map(|(&id, _)| id));
            self.turn();
        }
    }

    fn act(&mut self) {
        while let Some(effect) = self.core.next_effect() {
            assert!(self.end.is_none(), "{effect:?} after the end");
            match effect {
                Effect::StartGroup { epoch, request, .. } => {
                    assert_eq!((epoch, request.epoch), (self.launcher.epoch, epoch));
                    let wait = Duration::from_micros(self.random.next() % 5000);
                    self.group = Group::Starting {
                        epoch,
                        at: Time(self.now.0 + wait),
                    };
                }
                Effect::SendStep(plan) => self.send(plan),
                Effect::Desk(order) => self.orders.push_back(order),
                Effect::SendMask {
                    step_id,
                    slot,
                    position,
                    mask,
                } => {
                    self.totals.masks_sent += 1;
                    self.worker().mask(step_id, slot, Some((position, mask)));
                }
                Effect::CallOff { step_id, slot } => {
                    self.totals.masks_called_off += 1;
                    self.worker().mask(step_id, slot, None);
                }
                Effect::DropGroup => self.drop_group(),
                Effect::ToLauncher(message) => {
                    if self.launcher.hear(self.now, &message) {
                        self.hung = false;
                    }
                }
                Effect::End(end) => {
                    assert!(self.draining.is_some(), "an end that nobody asked for");
                    self.end = Some(end);
                }
            }
        }
    }

    fn worker(&mut self) -> &mut Worker {
        match &mut self.group {
            Group::Up { worker, .. } => worker,
            _ => panic!("a message for a group that is not up"),
        }
    }

    /// The desk looks at some of its orders, and the engine at its answers.
    fn serve_desk(&mut self, most: usize) {
        for _ in 0..most {
            let Some(order) = self.orders.pop_front() else {
                return;
            };
            for ready in self.desk.take(order) {
                self.feed(Input::Mask(ready));
            }
        }
    }

    fn send(&mut self, plan: headrace_scheduler::StepPlan) {
        self.totals.steps += 1;
        self.trace = mix(self.trace, plan.step_id);
        for row in &plan.rows {
            self.trace = mix(
                self.trace,
                u64::from(row.slot) << 32 | u64::from(row.num_tokens),
            );
        }
        let Group::Up { worker, .. } = &mut self.group else {
            panic!("a step for a group that is not up");
        };
        for id in worker.send(plan) {
            assert!(
                !self.forgotten.contains(&id),
                "{id:?} left and is in a new step"
            );
        }
        let most = self.config.max_steps_in_flight as usize;
        assert!(worker.steps_in_flight() <= most, "too many steps in flight");
    }

    fn drop_group(&mut self) {
        if let Group::Up { epoch, worker } = std::mem::replace(&mut self.group, Group::Down) {
            self.note_death(&worker);
            if self.stale.len() < 3 {
                self.stale.push((epoch, *worker));
            }
        }
    }

    /// Those that had begun go on in the next start; who was alone in the steps is under suspicion.
    fn note_death(&mut self, worker: &Worker) {
        for id in worker.in_flight() {
            if let Some(client) = self.clients.get_mut(&id) {
                client.deaths += 1;
            }
        }
        for client in self.clients.values_mut() {
            if client.is_open() && client.heard() > 0 {
                client.resumed = true;
            }
        }
    }

    fn drain(&mut self) {
        let grace = self.random.pick(&[0, 1, 1, 1000]);
        self.totals.drains += 1;
        self.totals.drains_cut += u64::from(grace < 1000);
        self.draining = Some(Time(self.now.0 + Duration::from_secs(grace)));
        self.feed(Input::Control(ToRouter::Drain {
            grace_seconds: grace,
        }));
        if self.random.percent(30) {
            self.feed(Input::Control(ToRouter::Drain { grace_seconds: 0 }));
        }
    }

    fn leave(&mut self) {
        let open: Vec<SequenceId> = self
            .clients
            .iter()
            .filter(|(_, client)| client.is_open())
            .map(|(&id, _)| id)
            .collect();
        let Some(last) = open.len().checked_sub(1) else {
            return;
        };
        let id = open[self.random.between(0, last)];
        let client = self.clients.get_mut(&id).unwrap();
        match (&client.hold, client.started) {
            (Hold::Asked(_), _) | (_, false) => self.totals.left_queued += 1,
            _ if client.heard() + 1 >= client.work() - client.request.prompt.len() => {
                self.totals.left_late += 1;
            }
            _ => self.totals.left_running += 1,
        }
        client.leave();
    }

    fn read(&mut self, all: bool) {
        let cut = self.draining.is_some_and(|deadline| deadline <= self.now);
        for client in self.clients.values_mut() {
            client.causes.drain_cut |= cut;
            client.causes.group_lost |= self.lost;
            if matches!(client.hold, Hold::Asked(_)) {
                client.settle();
            }
            let most = match client.reader {
                _ if all => usize::MAX,
                Reader::Prompt => usize::MAX,
                Reader::Slow => usize::from(self.random.percent(30)),
                Reader::Stalled => 0,
            };
            let count = client.read(self.now, most);
            self.totals.paused += u64::from(count > 100);
            // A buffer is paused at 128; then only steps in flight add to it.
            assert!(count <= 140, "{count} events in a buffer");
            self.trace = mix(self.trace, count as u64);
        }
    }

    /// What must hold at every moment.
    fn check(&self) {
        let Some(scheduler) = self.core.scheduler() else {
            return;
        };
        scheduler.audit();
        let stats = scheduler.stats();
        assert_eq!(
            stats.free_blocks + stats.owned_blocks + stats.cached_blocks,
            stats.total_blocks
        );
        assert!(stats.running <= self.config.max_sequences as usize);
        let told = self.core.status();
        assert_eq!(told.draining, self.draining.is_some());
        if self.end.is_some() {
            return;
        }
        let Group::Up { worker, .. } = &self.group else {
            assert_eq!(stats.total_blocks, 0, "a dead group has blocks");
            return;
        };
        assert!(told.ready || told.draining || !told.was_ready);
        let paused = usize::try_from(told.stats.paused).unwrap();
        let has_work = stats.running + stats.waiting > paused;
        assert!(
            worker.steps_in_flight() > 0 || !has_work,
            "work and capacity exist, and nothing is sent: {stats:?}"
        );
    }
}

//! Who is served next, and for how long others may be served first.

use std::time::Duration;

/// The rules of the queue. The defaults share prefixes and let what fits pass what does not, for a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// How long a waiting sequence whose blocks cannot be had is passed by later ones, from when that was first
    /// seen. Then nothing behind it is admitted before it, so what ends leaves its blocks to it. 0: never
    /// passed. A preempted sequence is never passed.
    pub skip_ahead: Duration,
    /// How far behind the queue's front a sequence is looked for that may pass, `>= 1`.
    pub skip_ahead_window: usize,
    /// How long a sequence waits, in all, for blocks that running ones are computing and it would compute too.
    /// 0: it does not wait.
    pub share_prefixes: Duration,
    /// After how long a waiting sequence rises by one class, and then again; `None`: it stays in its class.
    pub ageing_period: Option<Duration>,
    /// The class that ageing leads to at most. Sequences of higher (smaller) ones stand above all that rose.
    pub highest_class: i32,
    /// After how long a waiting sequence stands above all classes, in order of arrival: no class, tenant or cached
    /// prefix comes before it and nothing passes it. So it waits for this long, then for what is overdue too and
    /// older, then at most until what runs leaves it the slot and blocks it needs. `None`: no such bound.
    pub overdue_age: Option<Duration>,
    /// What a tenant is charged for each prompt id that has to be computed.
    pub input_weight: u32,
    /// What a tenant is charged for each id sampled.
    pub output_weight: u32,
    /// Which of a class is next.
    pub order: QueueOrder,
    /// With [`QueueOrder::Lpm`]: how often a longer cached prefix may pass the sequence at the front.
    pub most_passes: u32,
    /// How much of a step's time prefills take from decoding rows.
    pub pace: StepPace,
}

/// What bounds the prefill tokens of a step in which sequences decode. What they cost follows from what steps took of
/// late. There are always a few, so that prefills go on, and where nothing decodes only the token budget counts.
///
/// In a bounded step the first prefill leaves half of its tokens to others of its class, so that a short prompt does
/// not wait for a long one to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepPace {
    /// Only the token budget.
    #[default]
    Unbounded,
    /// Decoding and prefilling sequences share the time alike, but prefills have two sevenths of it at least, so that
    /// beside many decoding rows a step takes 1.4 times what those take alone; and half of it once a prefill is older
    /// than twice the overdue age. Steps of at most 20 ms are not made shorter: nobody sees them.
    Shared,
    /// A step takes about so long at most.
    Target(Duration),
}

/// The order within a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// The tenant that had least, and its oldest sequence.
    #[default]
    Fcfs,
    /// The longest cached prefix, of the front and of those that begin like one that entered lately: at most 16
    /// matches are looked up, however long the queue is. Beginnings are whole blocks.
    Lpm,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            skip_ahead: Duration::from_secs(1),
            skip_ahead_window: 16,
            share_prefixes: Duration::from_secs(5),
            ageing_period: Some(Duration::from_secs(10)),
            highest_class: 0,
            overdue_age: Some(Duration::from_mins(1)),
            input_weight: 1,
            output_weight: 2,
            order: QueueOrder::Fcfs,
            most_passes: 4,
            pace: StepPace::Unbounded,
        }
    }
}

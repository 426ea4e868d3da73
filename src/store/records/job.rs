//! The bytes of a job. A running job is part of its subscription's cursor; one that has ended is a
//! record of its own.
//!
//! ```text
//! lane | kind 1 | replay: from, end; redrive: drained 1 | 0, or 1 and the rate
//!     | began 8 | changed 8 | state 1 | eleven counters
//! ```

use super::{
    RecordLayout,
    cursor::{counter_fields, take_counters},
    put_time, take_time,
};
use gridhook_event::{
    Lane, Seq,
    codec::{RecordReader, put_varint},
};
use gridhook_policy::record::{
    Rate,
    job::{Job, JobKind, JobState},
};

impl RecordLayout for Job {
    const NAME: &'static str = "job";

    fn write_fields(&self, out: &mut Vec<u8>) {
        put_varint(out, self.lane.0.into());
        // A byte is never reused, neither of a kind nor of a state.
        match self.kind {
            JobKind::Replay { from, end } => {
                out.push(1);
                put_varint(out, from.0);
                put_varint(out, end.0);
            }
            JobKind::Redrive { drained } => out.extend([2, drained.into()]),
        }
        out.push(self.rate.is_some().into());
        if let Some(Rate(rate)) = self.rate {
            put_varint(out, rate);
        }
        put_time(out, self.began);
        put_time(out, self.changed);
        out.push(match self.state {
            JobState::Running => 1,
            JobState::Paused => 2,
            JobState::Canceling => 3,
            JobState::Completed => 4,
            JobState::Canceled => 5,
        });
        for counter in counter_fields(&self.counters) {
            put_varint(out, counter);
        }
    }

    fn read_fields(_: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        let lane = Lane(u16::try_from(reader.varint()?).ok()?);
        let kind = match reader.u8()? {
            1 => JobKind::Replay {
                from: Seq(reader.varint()?),
                end: Seq(reader.varint()?),
            },
            2 => match reader.u8()? {
                drained @ (0 | 1) => JobKind::Redrive {
                    drained: drained == 1,
                },
                _ => return None,
            },
            _ => return None,
        };
        let rate = match reader.u8()? {
            0 => None,
            1 => Some(Rate(reader.varint()?)),
            _ => return None,
        };
        let began = take_time(reader)?;
        let changed = take_time(reader)?;
        let state = match reader.u8()? {
            1 => JobState::Running,
            2 => JobState::Paused,
            3 => JobState::Canceling,
            4 => JobState::Completed,
            5 => JobState::Canceled,
            _ => return None,
        };
        Some(Self {
            lane,
            kind,
            rate,
            began,
            changed,
            state,
            counters: take_counters(reader)?,
        })
    }
}

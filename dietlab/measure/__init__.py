"""Stage 2: builds and times candidates; every attempt leaves a record."""

from dietlab.measure.budget import Budget
from dietlab.measure.local import LocalRunner
from dietlab.measure.record import Measures, Record, Round, Runner, Status, Trial
from dietlab.measure.record_tables import frame_records, record_quantities, record_sections
from dietlab.measure.replay import ReplayRunner
from dietlab.measure.rpc.remote import RemoteRunner
from dietlab.measure.store import RecordFile, RecordStore, read_records, write_compressed
from dietlab.measure.synthetic import SyntheticRunner
from dietlab.measure.timing.protocol import CACHE_STATES, CacheState, Timing

__all__ = [
    "CACHE_STATES",
    "Budget",
    "CacheState",
    "LocalRunner",
    "Measures",
    "Record",
    "RecordFile",
    "RecordStore",
    "RemoteRunner",
    "ReplayRunner",
    "Round",
    "Runner",
    "Status",
    "SyntheticRunner",
    "Timing",
    "Trial",
    "frame_records",
    "read_records",
    "record_quantities",
    "record_sections",
    "write_compressed",
]

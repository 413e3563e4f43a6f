"""What every pair of the transition tables sends, in order, and the state that follows; `-` is nothing.

Written once from the code, and read through: a change here is a change of the protocol. Effects stand among the frames.
"""

from __future__ import annotations

_LINES = """
participant STEADY PREPARE: Prepared > FROZEN
participant STEADY PREPARE_AGAIN: - > STEADY
participant STEADY PREPARE_LOWER: Nack > STEADY
participant STEADY PREPARE_ENDED: Prepared > STEADY
participant STEADY PREPARE_AHEAD: Nack > STEADY
participant STEADY CUT_LOWER: Nack > STEADY
participant STEADY COMMIT: ViewInstalled, Installed > STEADY
participant STEADY COMMIT_LEAVE: Left, Installed > LEFT
participant STEADY COMMIT_LEFT_BEHIND: Left > LEFT
participant STEADY COMMIT_FOREIGN: ViewInstalled > STEADY
participant STEADY COMMIT_AGAIN: Installed > STEADY
participant STEADY COMMIT_LOWER: Nack > STEADY
participant STEADY ABORT: - > STEADY
participant STEADY ABORT_MISPLACED: - > STEADY
participant STEADY SEPARATE: ViewInstalled > STEADY
participant STEADY LAST_LEAVES: Left > LEFT
participant FROZEN PREPARE: Prepared > FROZEN
participant FROZEN PREPARE_AGAIN: Prepared > FROZEN
participant FROZEN PREPARE_LOWER: Nack > FROZEN
participant FROZEN PREPARE_ENDED: Prepared > FROZEN
participant FROZEN PREPARE_AHEAD: Nack > FROZEN
participant FROZEN CUT: - > FETCHING
participant FROZEN CUT_LOWER: Nack > FROZEN
participant FROZEN COMMIT: ViewInstalled, Installed > STEADY
participant FROZEN COMMIT_LEAVE: Left, Installed > LEFT
participant FROZEN COMMIT_LEFT_BEHIND: Left > LEFT
participant FROZEN COMMIT_FOREIGN: ViewInstalled > STEADY
participant FROZEN COMMIT_AGAIN: Installed > FROZEN
participant FROZEN COMMIT_LOWER: Nack > FROZEN
participant FROZEN ABORT: - > STEADY
participant FROZEN ABORT_IN_DOUBT: - > FROZEN
participant FROZEN ABORT_MISPLACED: - > FROZEN
participant FROZEN ANSWER_OVERDUE: Nack > FROZEN
participant FROZEN PROPOSER_SILENT: FlushTimedOut, Prepare to self > FROZEN
participant FROZEN LAST_LEAVES: Left > LEFT
participant FETCHING PREPARE: Prepared > FROZEN
participant FETCHING PREPARE_AGAIN: Prepared > FETCHING
participant FETCHING PREPARE_LOWER: Nack > FETCHING
participant FETCHING PREPARE_ENDED: Prepared > FETCHING
participant FETCHING PREPARE_AHEAD: Nack > FETCHING
participant FETCHING CUT: - > FETCHING
participant FETCHING CUT_LOWER: Nack > FETCHING
participant FETCHING CUT_HELD: Ready > READY
participant FETCHING COMMIT: ViewInstalled, Installed > STEADY
participant FETCHING COMMIT_LEAVE: Left, Installed > LEFT
participant FETCHING COMMIT_LEFT_BEHIND: Left > LEFT
participant FETCHING COMMIT_FOREIGN: ViewInstalled > STEADY
participant FETCHING COMMIT_AGAIN: Installed > FETCHING
participant FETCHING COMMIT_LOWER: Nack > FETCHING
participant FETCHING ABORT: - > STEADY
participant FETCHING ABORT_IN_DOUBT: - > FROZEN
participant FETCHING ABORT_MISPLACED: - > FETCHING
participant FETCHING ANSWER_OVERDUE: Nack > FETCHING
participant FETCHING PROPOSER_SILENT: FlushTimedOut, Prepare to self > FETCHING
participant FETCHING LAST_LEAVES: Left > LEFT
participant READY PREPARE: Prepared > FROZEN
participant READY PREPARE_AGAIN: Prepared > READY
participant READY PREPARE_LOWER: Nack > READY
participant READY PREPARE_ENDED: Prepared > READY
participant READY PREPARE_AHEAD: Nack > READY
participant READY CUT: Ready > READY
participant READY CUT_LOWER: Nack > READY
participant READY COMMIT: ViewInstalled, Installed > STEADY
participant READY COMMIT_LEAVE: Left, Installed > LEFT
participant READY COMMIT_LEFT_BEHIND: Left > LEFT
participant READY COMMIT_FOREIGN: ViewInstalled > STEADY
participant READY COMMIT_AGAIN: Installed > READY
participant READY COMMIT_LOWER: Nack > READY
participant READY ABORT: - > STEADY
participant READY ABORT_IN_DOUBT: - > FROZEN
participant READY ABORT_MISPLACED: - > READY
participant READY ANSWER_OVERDUE: Nack > READY
participant READY PROPOSER_SILENT: FlushTimedOut, Prepare to self > READY
participant READY LAST_LEAVES: Left > LEFT
participant LEFT PREPARE_ENDED: Prepared > LEFT
participant LEFT PREPARE_AHEAD: Nack > LEFT
participant LEFT COMMIT_AGAIN: Installed > LEFT
participant LEFT COMMIT_LOWER: Nack > LEFT
coordinator IDLE CHANGE_NEEDED: Prepare, Prepare to self > COLLECT
coordinator IDLE PREPARED_STALE: - > IDLE
coordinator IDLE READY_STALE: - > IDLE
coordinator IDLE NACK_OLD_BALLOT: Abort > IDLE
coordinator IDLE NACK_ENDED: Commit > IDLE
coordinator IDLE NACK_STALE: - > IDLE
coordinator IDLE LEAVE_REQUEST: Prepare, Prepare, Prepare to self > COLLECT
coordinator IDLE LEAVE_STALE: - > IDLE
coordinator IDLE VIEW_ENDED: - > IDLE
coordinator COLLECT CHANGE_NEEDED: Prepare, Prepare to self > COLLECT
coordinator COLLECT CHANGE_NOT_NEEDED: Abort, Abort, Abort to self > IDLE
coordinator COLLECT PREPARED: - > COLLECT
coordinator COLLECT PREPARED_BY_ALL: CutTo, CutTo, CutTo to self > CUTTING
coordinator COLLECT PREPARED_FOR_MERGE: MergeResponse > COLLECT
coordinator COLLECT PREPARED_ENDED: Commit, Commit, Commit to self > IDLE
coordinator COLLECT PREPARED_STALE: - > COLLECT
coordinator COLLECT MERGE_PLANNED: CutTo, CutTo to self > CUTTING
coordinator COLLECT READY_STALE: - > COLLECT
coordinator COLLECT MERGE_CANCELLED: Abort, Abort to self > IDLE
coordinator COLLECT NACK_HIGHER: Abort, Abort, Abort to self > STANDING_BACK
coordinator COLLECT NACK_QUESTION: Prepare > COLLECT
coordinator COLLECT NACK_OLD_BALLOT: Abort > COLLECT
coordinator COLLECT NACK_ENDED: Commit > COLLECT
coordinator COLLECT NACK_STALE: - > COLLECT
coordinator COLLECT LEAVE_REQUEST: Prepare, Prepare, Prepare to self > COLLECT
coordinator COLLECT LEAVE_STALE: - > COLLECT
coordinator COLLECT SUPERSEDED: - > IDLE
coordinator COLLECT VIEW_ENDED: - > IDLE
coordinator COLLECT SILENCE: FlushTimedOut, FlushTimedOut, Prepare to self > COLLECT
coordinator COLLECT PART_TIMEOUT: Abort, Abort to self > IDLE
coordinator COLLECT STILL_LATE: Abort, Abort, Abort to self > IDLE
coordinator CUTTING CHANGE_NEEDED: Prepare, Prepare to self > COLLECT
coordinator CUTTING CHANGE_NOT_NEEDED: Abort, Abort, Abort to self > IDLE
coordinator CUTTING PREPARED_STALE: - > CUTTING
coordinator CUTTING READY: - > CUTTING
coordinator CUTTING READY_OF_ALL: Commit, Commit, Commit to self > IDLE
coordinator CUTTING READY_FOR_MERGE: MergeReady > CUTTING
coordinator CUTTING READY_STALE: - > CUTTING
coordinator CUTTING MERGE_COMMITTED: Commit, Commit to self > IDLE
coordinator CUTTING MERGE_CANCELLED: Abort, Abort to self > IDLE
coordinator CUTTING NACK_HIGHER: Abort, Abort, Abort to self > STANDING_BACK
coordinator CUTTING NACK_QUESTION: CutTo > CUTTING
coordinator CUTTING NACK_OLD_BALLOT: Abort > CUTTING
coordinator CUTTING NACK_ENDED: Commit > CUTTING
coordinator CUTTING NACK_STALE: - > CUTTING
coordinator CUTTING LEAVE_REQUEST: Prepare, Prepare, Prepare to self > COLLECT
coordinator CUTTING LEAVE_STALE: - > CUTTING
coordinator CUTTING SUPERSEDED: - > IDLE
coordinator CUTTING VIEW_ENDED: - > IDLE
coordinator CUTTING SILENCE: FlushTimedOut, FlushTimedOut, Prepare to self > COLLECT
coordinator CUTTING PART_TIMEOUT: Abort, Abort to self > IDLE
coordinator CUTTING STILL_LATE: Abort, Abort, Abort to self > IDLE
coordinator STANDING_BACK CHANGE_NEEDED: - > STANDING_BACK
coordinator STANDING_BACK PREPARED_STALE: - > STANDING_BACK
coordinator STANDING_BACK READY_STALE: - > STANDING_BACK
coordinator STANDING_BACK NACK_OLD_BALLOT: Abort > STANDING_BACK
coordinator STANDING_BACK NACK_ENDED: Commit > STANDING_BACK
coordinator STANDING_BACK NACK_STALE: - > STANDING_BACK
coordinator STANDING_BACK LEAVE_REQUEST: - > STANDING_BACK
coordinator STANDING_BACK LEAVE_STALE: - > STANDING_BACK
coordinator STANDING_BACK VIEW_ENDED: - > IDLE
coordinator STANDING_BACK STAND_BACK_OVER: - > IDLE
announcer IDLE COMMITTED: Commit, Commit > ANNOUNCING
announcer IDLE COMMITTED_ALONE: - > IDLE
announcer IDLE INSTALLED_STALE: - > IDLE
announcer IDLE RETRY: - > IDLE
announcer ANNOUNCING COMMITTED: Commit, Commit > ANNOUNCING
announcer ANNOUNCING COMMITTED_ALONE: - > IDLE
announcer ANNOUNCING INSTALLED: - > ANNOUNCING
announcer ANNOUNCING INSTALLED_BY_ALL: - > IDLE
announcer ANNOUNCING INSTALLED_STALE: - > ANNOUNCING
announcer ANNOUNCING RETRY: Commit, Commit > ANNOUNCING
announcer ANNOUNCING TIMEOUT: - > IDLE
part FREE REQUEST: Prepare, Prepare to self > PREPARING
part FREE REQUEST_STALE: MergeRefusal > FREE
part FREE REQUEST_UNSUITABLE: MergeRefusal > FREE
part FREE PLAN_STALE: MergeRefusal > FREE
part FREE COMMIT_AGAIN: Installed > FREE
part FREE COMMIT_STALE: - > FREE
part FREE CANCEL_STALE: - > FREE
part FREE ROUND_LOST: - > FREE
part FREE ROUND_OVER: - > FREE
part FREE RETRY: - > FREE
part PREPARING REQUEST_AGAIN: - > PREPARING
part PREPARING REQUEST_STALE: MergeRefusal > PREPARING
part PREPARING REQUEST_UNSUITABLE: MergeRefusal > PREPARING
part PREPARING ALL_ANSWERED: MergeResponse > ANSWERED
part PREPARING PLAN: - > PREPARING
part PREPARING PLAN_STALE: MergeRefusal > PREPARING
part PREPARING COMMIT_AGAIN: Installed > PREPARING
part PREPARING COMMIT_STALE: - > PREPARING
part PREPARING CANCEL: Abort, Abort to self > FREE
part PREPARING CANCEL_STALE: - > PREPARING
part PREPARING ROUND_LOST: MergeRefusal > FREE
part PREPARING ROUND_OVER: - > FREE
part PREPARING RETRY: - > PREPARING
part ANSWERED REQUEST_AGAIN: - > ANSWERED
part ANSWERED REQUEST_STALE: MergeRefusal > ANSWERED
part ANSWERED REQUEST_UNSUITABLE: MergeRefusal > ANSWERED
part ANSWERED PLAN: CutTo, CutTo to self > CUTTING
part ANSWERED PLAN_STALE: MergeRefusal > ANSWERED
part ANSWERED COMMIT_AGAIN: Installed > ANSWERED
part ANSWERED COMMIT_STALE: - > ANSWERED
part ANSWERED CANCEL: Abort, Abort to self > FREE
part ANSWERED CANCEL_STALE: - > ANSWERED
part ANSWERED ROUND_LOST: MergeRefusal > FREE
part ANSWERED ROUND_OVER: - > FREE
part ANSWERED RETRY: MergeResponse > ANSWERED
part CUTTING REQUEST_AGAIN: - > CUTTING
part CUTTING REQUEST_STALE: MergeRefusal > CUTTING
part CUTTING REQUEST_UNSUITABLE: MergeRefusal > CUTTING
part CUTTING PLAN: - > CUTTING
part CUTTING PLAN_STALE: MergeRefusal > CUTTING
part CUTTING ALL_READY: MergeReady > READY
part CUTTING COMMIT: - > CUTTING
part CUTTING COMMIT_AGAIN: Installed > CUTTING
part CUTTING COMMIT_STALE: - > CUTTING
part CUTTING CANCEL: Abort, Abort to self > FREE
part CUTTING CANCEL_STALE: - > CUTTING
part CUTTING ROUND_LOST: MergeRefusal > FREE
part CUTTING ROUND_OVER: - > FREE
part CUTTING RETRY: - > CUTTING
part READY REQUEST_AGAIN: - > READY
part READY REQUEST_STALE: MergeRefusal > READY
part READY REQUEST_UNSUITABLE: MergeRefusal > READY
part READY PLAN: - > READY
part READY PLAN_STALE: MergeRefusal > READY
part READY COMMIT: Commit, Installed, Commit to self > FREE
part READY COMMIT_AGAIN: Installed > READY
part READY COMMIT_STALE: - > READY
part READY CANCEL: Abort, Abort to self > FREE
part READY CANCEL_IN_DOUBT: Abort, Prepare, Abort to self, Prepare to self > FREE
part READY CANCEL_STALE: - > READY
part READY ROUND_LOST: MergeRefusal > FREE
part READY ROUND_OVER: - > FREE
part READY RETRY: MergeReady > READY
leader IDLE LEAD: MergeRequest, MergeRequest, MergeRequest to self > GATHERING
leader IDLE REFUSAL_STALE: - > IDLE
leader IDLE OLD_MERGE: MergeCancel > IDLE
leader IDLE INSTALLED_STALE: - > IDLE
leader IDLE OWN_PART_LOST: - > IDLE
leader GATHERING RESPONSE: - > GATHERING
leader GATHERING RESPONSE_AGAIN: - > GATHERING
leader GATHERING RESPONSE_OF_STRANGER: MergeCancel > GATHERING
leader GATHERING ALL_RESPONDED: MergeView, MergeView, MergeView to self > AGREEING
leader GATHERING DIGEST_MISSING: MergeCancel, MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader GATHERING REFUSAL: MergeFailed > GATHERING
leader GATHERING REFUSAL_FATAL: MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader GATHERING REFUSAL_STALE: - > GATHERING
leader GATHERING READY_STALE: - > GATHERING
leader GATHERING OLD_MERGE: MergeCancel > GATHERING
leader GATHERING INSTALLED_STALE: - > GATHERING
leader GATHERING RETRY: MergeRequest, MergeRequest > GATHERING
leader GATHERING TIMEOUT: MergeUnanswered, MergeCancel, MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader GATHERING OWN_PART_LOST: MergeCancel, MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader AGREEING RESPONSE: MergeCancel, MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader AGREEING RESPONSE_AGAIN: - > AGREEING
leader AGREEING RESPONSE_OF_STRANGER: MergeCancel > AGREEING
leader AGREEING REFUSAL: MergeCancel, MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader AGREEING REFUSAL_FATAL: MergeCancel, MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader AGREEING REFUSAL_STALE: - > AGREEING
leader AGREEING READY: - > AGREEING
leader AGREEING READY_OF_ALL: MergeCommit, MergeCommit, MergeCommit to self > COMMITTED
leader AGREEING READY_STALE: - > AGREEING
leader AGREEING OLD_MERGE: MergeCancel > AGREEING
leader AGREEING INSTALLED_STALE: - > AGREEING
leader AGREEING RETRY: MergeView, MergeView > AGREEING
leader AGREEING TIMEOUT: MergeUnanswered, MergeCancel, MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader AGREEING OWN_PART_LOST: MergeCancel, MergeCancel, MergeFailed, MergeCancel to self > IDLE
leader COMMITTED RESPONSE: - > COMMITTED
leader COMMITTED RESPONSE_AGAIN: - > COMMITTED
leader COMMITTED RESPONSE_OF_STRANGER: MergeCancel > COMMITTED
leader COMMITTED REFUSAL: - > COMMITTED
leader COMMITTED REFUSAL_FATAL: - > COMMITTED
leader COMMITTED REFUSAL_STALE: - > COMMITTED
leader COMMITTED READY_STALE: - > COMMITTED
leader COMMITTED OLD_MERGE: MergeCancel > COMMITTED
leader COMMITTED INSTALLED: - > COMMITTED
leader COMMITTED INSTALLED_BY_ALL: - > IDLE
leader COMMITTED INSTALLED_STALE: - > COMMITTED
leader COMMITTED RETRY: MergeCommit, MergeCommit > COMMITTED
leader COMMITTED TIMEOUT: - > IDLE
leader COMMITTED OWN_PART_LOST: - > COMMITTED
"""


def _parsed(line: str) -> tuple[tuple[str, str, str], str]:
    pair, outcome = line.split(": ")
    role, state, occurred = pair.split()
    return (role, state, occurred), outcome


EXPECTED = dict(map(_parsed, _LINES.split("\n")[1:-1]))

"""What a step is described by: an array of integers, which are numbers and addresses of arrays that Python owns."""

N_ROWS, N_WANTED, N_GROUPS = 0, 1, 2
TOKENS = 3
"""int32 [n_rows]"""
POSITIONS = 4
"""int32 [n_rows]"""
OWNERS = 5
"""int32 [n_rows]: the segment of each row."""
TABLES = 6
"""int64 [n_segments * n_groups]: addresses of int32 page tables."""
WANTED = 7
"""int32 [n_wanted]"""
VALUES = 8
"""int64 [n_slots + 1]: addresses of values; that of the logits comes first."""
ANGLES = 9
"""int64 [n_ropes]: addresses of float32 [n_rows][n_rot]."""
ROPES = 10
"""int64 [n_ropes][2]: n_rot, and whether pairs are half a rotation apart."""
LAYERS = 11
"""int64 [n_states][LAYER_SIZE]: what the kernels of attention describe a layer by, then its group of page tables."""
WEIGHTS = 12
"""int64 [n_weights][WEIGHT_SIZE]: what the kernels of products describe a matrix by, then its two kernels."""
INPUTS = 13
"""[n_block][rows] quantized blocks of inputs."""
SHARED = 14
"""int64: what threads tell each other."""
SCRATCH, SCRATCH_BYTES = 15, 16
"""Each thread's work space, one after the other."""
STORE, ATTEND = 17, 18
"""The kernels of the type that keys and values are kept in."""
CALLS = 19
"""int64: addresses of row functions."""
FRAME_SIZE = 20

LAYER_SIZE, GROUP = 7, 6
WEIGHT_SIZE, SCALE_OF, BIAS_OF, MATMUL, ROW = 8, 4, 5, 6, 7

ARRIVED, CANCELLED, STOP_AT, COUNTERS = 0, 8, 16, 24
"""Places in what is shared, each on a cache line of its own; there is a counter for every op."""
NEVER = 1 << 60
"""STOP_AT of a step that goes on."""

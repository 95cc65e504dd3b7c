/* A libnvidia-ml.so.1 that says what a text file says: for tests on machines without a GPU.
 *
 * The file named by $FAKE_NVML_STATE is read again on every call, so a test can change the machine under a running
 * process. One statement a line, words separated by blanks, '#' starts a comment line:
 *
 *     gpu UUID NAME MEM_MIB MINOR    a device; '_' in NAME is shown as a blank; NVML's index is its position
 *     mig UUID GPU MEM_MIB           a MIG slice of the device with the UUID GPU, whose MIG mode is on then
 *     event UUID XID [GI CI]         an XID of the device, of one of its MIG slices if two instances are named; waiting
 *                                    for events returns each line once in every process
 *     proc PID UUID MIB|na SM        a compute process on the device or slice, with SM percent of it; na: the driver
 *                                    does not tell how much memory it has
 *     lost UUID                      the device has fallen off its bus: it is counted, and every call on it or on its
 *                                    slices, and the question for its handle by index, answers "GPU is lost"
 *     profile GPU ID NAME MEM_MIB SIZE MOST START[,START...]   a profile of GPU instances of the device, whose MIG mode is
 *                                    on then: of SIZE memory slices, MOST of them at once, each at one of the starts
 *     gi GPU ID PROFILE START        a GPU instance
 *     ci GPU GI ID UUID              the compute instance of a GPU instance, which has all of it: a MIG slice
 *     limit UUID PATH SOFT HARD      memory limits in bytes that the control group at PATH has of the device; \040 stands
 *                                    for a blank in PATH, \011 for a tab, \134 for a backslash
 *     held UUID PATH MIB             what the control group at PATH has of the device's memory, without groups below
 *     stuck UUID                     setting a memory limit of the device answers success and changes nothing
 *     fail FUNCTION CODE             that function, by its exported name, returns this nvmlReturn_t
 *
 * Functions that make and destroy instances and that set limits change the file, in place; others wait meanwhile only if
 * they do too. A control group with a file dmem.max has the limit that was set on it, another one that of the nearest
 * group above it that has one. Of a folder that is not there "not found" (6) is answered.
 * A missing file answers "driver not loaded" (9), a malformed one "unknown error" (999) and a line on stderr.
 * A handle names a UUID: when its device leaves the file, calls on it answer "GPU is lost" (15).
 * Not thread-safe, and only the functions that Moorage uses. Layouts and codes: NVML API reference.
 */

#define _DEFAULT_SOURCE /* usleep, flock */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

enum { MAX_GPUS = 32, MAX_SLICES_OF_GPU = 7, MAX_FAILURES = 32, MAX_EVENTS = 256, MAX_PROCS = 1024, MAX_LOST = 32, WORD = 96 };
enum { MAX_LIMITS = 512, PATH = 1024, LINE = PATH + 256 };
enum { MAX_STARTS = 8, MAX_PROFILES = 64, MAX_INSTANCES = MAX_GPUS * MAX_SLICES_OF_GPU, MAX_STATE = 1 << 18 };

typedef struct {
    char uuid[WORD];
    char name[WORD];
    unsigned long long mem_mib;
    unsigned int minor;
    char parent[WORD]; /* of a slice: the device that it is a part of; else "" */
    unsigned int gpu_instance, compute_instance; /* NO_INSTANCE: of a "mig" line */
} gpu_t;

typedef struct {
    char gpu[WORD];
    unsigned int id;
    char name[WORD];
    unsigned long long mem_mib;
    unsigned int size, most, starts[MAX_STARTS], start_count;
} profile_t;

typedef struct {
    char gpu[WORD];
    unsigned int id, profile, start;
} gpu_instance_t;

typedef struct {
    char uuid[WORD];
    unsigned long long xid;
    unsigned int gpu_instance, compute_instance; /* NO_INSTANCE: of the whole device */
} event_t;

static const unsigned int NO_INSTANCE = ~0u;

typedef struct {
    char uuid[WORD], path[PATH]; /* of the path: as it is written in the file */
    unsigned long long soft, hard; /* of a "held" line: 0 and the bytes */
} limit_t;

typedef struct {
    unsigned int pid;
    char uuid[WORD];
    unsigned long long bytes; /* NOT_AVAILABLE: not told */
    unsigned int sm;
} proc_t;

static const unsigned long long NOT_AVAILABLE = ~0ull;

typedef struct {
    gpu_t gpus[MAX_GPUS];
    unsigned int gpu_count;
    gpu_t slices[MAX_GPUS * MAX_SLICES_OF_GPU];
    unsigned int slice_count;
    struct {
        char function[WORD];
        int code;
    } failures[MAX_FAILURES];
    unsigned int failure_count;
    event_t events[MAX_EVENTS];
    unsigned int event_count;
    proc_t procs[MAX_PROCS];
    unsigned int proc_count;
    char lost[MAX_LOST][WORD];
    unsigned int lost_count;
    profile_t profiles[MAX_PROFILES];
    unsigned int profile_count;
    gpu_instance_t instances[MAX_INSTANCES];
    unsigned int instance_count;
    limit_t limits[MAX_LIMITS], held[MAX_LIMITS];
    unsigned int limit_count, held_count;
    char stuck[MAX_GPUS][WORD];
    unsigned int stuck_count;
} state_t;

typedef struct {
    char uuid[WORD];
} *handle_t;

typedef struct {
    unsigned long long total, free, used;
} memory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} memory_v2_t;

typedef struct {
    handle_t device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
} event_data_t;

static int init_count;

static int read_event(event_t *event, const char *line) {
    char rest;
    unsigned int gi, ci;
    int words = sscanf(line, " event %95s %llu %u %u %c", event->uuid, &event->xid, &gi, &ci, &rest);
    event->gpu_instance = words == 4 ? gi : NO_INSTANCE;
    event->compute_instance = words == 4 ? ci : NO_INSTANCE;
    return words == 2 || words == 4;
}

typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance, compute_instance;
} process_t;

typedef struct {
    unsigned int pid;
    unsigned long long time_us;
    unsigned int sm, memory, encoder, decoder;
} process_use_t;

typedef struct {
    unsigned int gpu, memory;
} rates_t;

static int read_proc(proc_t *proc, const char *line) {
    char mib[WORD], rest, *end;
    if (sscanf(line, " proc %u %95s %95s %u %c", &proc->pid, proc->uuid, mib, &proc->sm, &rest) != 4)
        return 0;
    if (strcmp(mib, "na") == 0) {
        proc->bytes = NOT_AVAILABLE;
        return 1;
    }
    proc->bytes = strtoull(mib, &end, 10) << 20;
    return *end == '\0' && mib[0] >= '0' && mib[0] <= '9';
}

static int read_profile(profile_t *profile, const char *line) {
    char starts[WORD], rest, *at = starts;
    if (sscanf(line, " profile %95s %u %95s %llu %u %u %95s %c", profile->gpu, &profile->id, profile->name,
               &profile->mem_mib, &profile->size, &profile->most, starts, &rest) != 7)
        return 0;
    for (profile->start_count = 0; profile->start_count < MAX_STARTS && *at >= '0' && *at <= '9';) {
        profile->starts[profile->start_count++] = (unsigned int)strtoul(at, &at, 10);
        if (*at == ',')
            at++;
    }
    return *at == '\0' && profile->start_count > 0;
}

static int read_slice(gpu_t *slice, const char *line) {
    char rest;
    slice->name[0] = '\0';
    slice->gpu_instance = slice->compute_instance = NO_INSTANCE;
    return sscanf(line, " mig %95s %95s %llu %c", slice->uuid, slice->parent, &slice->mem_mib, &rest) == 3;
}

static int read_limit(limit_t *limit, const char *line) {
    char rest;
    return sscanf(line, " limit %95s %1023s %llu %llu %c", limit->uuid, limit->path, &limit->soft, &limit->hard, &rest) ==
           4;
}

static int read_held(limit_t *held, const char *line) {
    char rest;
    int words = sscanf(line, " held %95s %1023s %llu %c", held->uuid, held->path, &held->hard, &rest);
    held->hard <<= 20;
    return words == 3;
}

static int read_line(state_t *state, const char *line) {
    char word[WORD], rest;
    if (sscanf(line, "%95s", word) != 1 || word[0] == '#')
        return 1;
    if (strcmp(word, "gpu") == 0 && state->gpu_count < MAX_GPUS) {
        gpu_t *gpu = &state->gpus[state->gpu_count++];
        gpu->parent[0] = '\0';
        if (sscanf(line, " gpu %95s %95s %llu %u %c", gpu->uuid, gpu->name, &gpu->mem_mib, &gpu->minor, &rest) != 4)
            return 0;
        for (char *c = gpu->name; *c; c++)
            if (*c == '_')
                *c = ' ';
        return 1;
    }
    if (strcmp(word, "mig") == 0 && state->slice_count < MAX_GPUS * MAX_SLICES_OF_GPU) {
        return read_slice(&state->slices[state->slice_count++], line);
    }
    if (strcmp(word, "profile") == 0 && state->profile_count < MAX_PROFILES)
        return read_profile(&state->profiles[state->profile_count++], line);
    if (strcmp(word, "gi") == 0 && state->instance_count < MAX_INSTANCES) {
        gpu_instance_t *gi = &state->instances[state->instance_count++];
        return sscanf(line, " gi %95s %u %u %u %c", gi->gpu, &gi->id, &gi->profile, &gi->start, &rest) == 4;
    }
    if (strcmp(word, "ci") == 0 && state->slice_count < MAX_GPUS * MAX_SLICES_OF_GPU) {
        gpu_t *slice = &state->slices[state->slice_count++];
        return sscanf(line, " ci %95s %u %u %95s %c", slice->parent, &slice->gpu_instance, &slice->compute_instance,
                      slice->uuid, &rest) == 4;
    }
    if (strcmp(word, "event") == 0 && state->event_count < MAX_EVENTS)
        return read_event(&state->events[state->event_count++], line);
    if (strcmp(word, "proc") == 0 && state->proc_count < MAX_PROCS)
        return read_proc(&state->procs[state->proc_count++], line);
    if (strcmp(word, "lost") == 0 && state->lost_count < MAX_LOST)
        return sscanf(line, " lost %95s %c", state->lost[state->lost_count++], &rest) == 1;
    if (strcmp(word, "limit") == 0 && state->limit_count < MAX_LIMITS)
        return read_limit(&state->limits[state->limit_count++], line);
    if (strcmp(word, "held") == 0 && state->held_count < MAX_LIMITS)
        return read_held(&state->held[state->held_count++], line);
    if (strcmp(word, "stuck") == 0 && state->stuck_count < MAX_GPUS)
        return sscanf(line, " stuck %95s %c", state->stuck[state->stuck_count++], &rest) == 1;
    if (strcmp(word, "fail") == 0 && state->failure_count < MAX_FAILURES) {
        unsigned int i = state->failure_count++;
        return sscanf(line, " fail %95s %d %c", state->failures[i].function, &state->failures[i].code, &rest) == 2;
    }
    return 0;
}

static const profile_t *profile_of(const state_t *state, const char *gpu, unsigned int id) {
    for (unsigned int i = 0; i < state->profile_count; i++)
        if (strcmp(state->profiles[i].gpu, gpu) == 0 && state->profiles[i].id == id)
            return &state->profiles[i];
    return NULL;
}

static const gpu_instance_t *instance_of(const state_t *state, const char *gpu, unsigned int id) {
    for (unsigned int i = 0; i < state->instance_count; i++)
        if (strcmp(state->instances[i].gpu, gpu) == 0 && state->instances[i].id == id)
            return &state->instances[i];
    return NULL;
}

/* Name and memory of the slices that are compute instances: of their profile. */
static int name_slices(state_t *state) {
    for (unsigned int i = 0; i < state->slice_count; i++) {
        gpu_t *slice = &state->slices[i];
        const gpu_instance_t *gi;
        const profile_t *profile;
        if (slice->gpu_instance == NO_INSTANCE)
            continue;
        gi = instance_of(state, slice->parent, slice->gpu_instance);
        profile = gi ? profile_of(state, gi->gpu, gi->profile) : NULL;
        if (!profile)
            return 0;
        slice->mem_mib = profile->mem_mib;
        snprintf(slice->name, sizeof slice->name, "Stub MIG %.80s", profile->name);
    }
    return 1;
}

static int read_state(state_t *state) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[LINE];
    int result = SUCCESS;
    /* What has not been counted is not read, so only the counts have to be cleared. */
    state->gpu_count = state->slice_count = state->failure_count = state->event_count = state->proc_count = 0;
    state->lost_count = 0;
    state->profile_count = state->instance_count = 0;
    state->limit_count = state->held_count = state->stuck_count = 0;
    if (!file)
        return DRIVER_NOT_LOADED;
    while (result == SUCCESS && fgets(line, sizeof line, file))
        if (!read_line(state, line)) {
            fprintf(stderr, "nvml_stub: %s: can't read line: %s", path, line);
            result = UNKNOWN;
        }
    fclose(file);
    return result == SUCCESS && !name_slices(state) ? UNKNOWN : result;
}

/* What stands before every function: the file's contents, and the failure asked for. */
static int enter(state_t *state, const char *function, int needs_init) {
    int result = read_state(state);
    if (result != SUCCESS)
        return result;
    for (unsigned int i = 0; i < state->failure_count; i++)
        if (strcmp(state->failures[i].function, function) == 0)
            return state->failures[i].code;
    return needs_init && !init_count ? UNINITIALIZED : SUCCESS;
}

static const gpu_t *find(const state_t *state, const char *uuid) {
    for (unsigned int i = 0; i < state->gpu_count; i++)
        if (strcmp(state->gpus[i].uuid, uuid) == 0)
            return &state->gpus[i];
    for (unsigned int i = 0; i < state->slice_count; i++)
        if (strcmp(state->slices[i].uuid, uuid) == 0)
            return &state->slices[i];
    return NULL;
}

/* Whether a device, or the one that a slice is a part of, does not answer any more. */
static int is_lost(const state_t *state, const gpu_t *gpu) {
    for (unsigned int i = 0; i < state->lost_count; i++)
        if (strcmp(state->lost[i], gpu->uuid) == 0 || strcmp(state->lost[i], gpu->parent) == 0)
            return 1;
    return 0;
}

static int enter_device(state_t *state, const char *function, handle_t handle, const gpu_t **gpu) {
    int result = enter(state, function, 1);
    if (result != SUCCESS)
        return result;
    if (!handle)
        return INVALID_ARGUMENT;
    *gpu = find(state, handle->uuid);
    return *gpu && !is_lost(state, *gpu) ? SUCCESS : GPU_IS_LOST;
}

/* For what slices have not: an index and a minor number of their own, and slices. */
static int enter_gpu(state_t *state, const char *function, handle_t handle, const gpu_t **gpu) {
    int result = enter_device(state, function, handle, gpu);
    return result == SUCCESS && (*gpu)->parent[0] ? NOT_SUPPORTED : result;
}

/* The slice at an index among those of one device; NULL if it has none there. */
static const gpu_t *slice_of(const state_t *state, const gpu_t *gpu, unsigned int index) {
    for (unsigned int i = 0; i < state->slice_count; i++)
        if (strcmp(state->slices[i].parent, gpu->uuid) == 0 && index-- == 0)
            return &state->slices[i];
    return NULL;
}

static int has_mig(const state_t *state, const gpu_t *gpu) {
    for (unsigned int i = 0; i < state->profile_count; i++)
        if (strcmp(state->profiles[i].gpu, gpu->uuid) == 0)
            return 1;
    return slice_of(state, gpu, 0) != NULL;
}

/* Handles live as long as the process: a UUID keeps its handle, as with the driver. */
static handle_t handle_of(const char *uuid) {
    static struct {
        char uuid[WORD];
    } handles[MAX_GPUS * (1 + MAX_SLICES_OF_GPU) * 8];
    static unsigned int used;
    for (unsigned int i = 0; i < used; i++)
        if (strcmp(handles[i].uuid, uuid) == 0)
            return (handle_t)&handles[i];
    if (used == sizeof handles / sizeof handles[0])
        return NULL;
    strcpy(handles[used].uuid, uuid);
    return (handle_t)&handles[used++];
}

static int copy_text(char *to, unsigned int size, const char *text) {
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

static int init(const char *function) {
    state_t state;
    int result = enter(&state, function, 0);
    if (result == SUCCESS)
        init_count++;
    return result;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return init("nvmlInitWithFlags");
}

int nvmlInit_v2(void) { return init("nvmlInit_v2"); }

int nvmlShutdown(void) {
    state_t state;
    int result = enter(&state, "nvmlShutdown", 1);
    if (result == SUCCESS)
        init_count--;
    return result;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS:
        return "Success";
    case UNINITIALIZED:
        return "Uninitialized";
    case DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case GPU_IS_LOST:
        return "GPU is lost";
    case IN_USE:
        return "In use by another client";
    case INSUFFICIENT_RESOURCES:
        return "Insufficient Resources";
    default:
        return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size) {
    state_t state;
    int result = enter(&state, "nvmlSystemGetDriverVersion", 1);
    return result != SUCCESS ? result : copy_text(version, size, "0.0.0-stub");
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    state_t state;
    int result = enter(&state, "nvmlDeviceGetCount_v2", 1);
    if (result == SUCCESS)
        *count = state.gpu_count;
    return result;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle_t *handle) {
    state_t state;
    int result = enter(&state, "nvmlDeviceGetHandleByIndex_v2", 1);
    if (result != SUCCESS)
        return result;
    if (index >= state.gpu_count)
        return INVALID_ARGUMENT;
    if (is_lost(&state, &state.gpus[index]))
        return GPU_IS_LOST;
    *handle = handle_of(state.gpus[index].uuid);
    return *handle ? SUCCESS : UNKNOWN;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, handle_t *handle) {
    state_t state;
    int result = enter(&state, "nvmlDeviceGetHandleByUUID", 1);
    if (result != SUCCESS)
        return result;
    if (!find(&state, uuid))
        return NOT_FOUND;
    *handle = handle_of(uuid);
    return *handle ? SUCCESS : UNKNOWN;
}

int nvmlDeviceGetUUID(handle_t handle, char *uuid, unsigned int size) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_device(&state, "nvmlDeviceGetUUID", handle, &gpu);
    return result != SUCCESS ? result : copy_text(uuid, size, gpu->uuid);
}

int nvmlDeviceGetName(handle_t handle, char *name, unsigned int size) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_device(&state, "nvmlDeviceGetName", handle, &gpu);
    return result != SUCCESS ? result : copy_text(name, size, gpu->name);
}

int nvmlDeviceGetMinorNumber(handle_t handle, unsigned int *minor) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_gpu(&state, "nvmlDeviceGetMinorNumber", handle, &gpu);
    if (result == SUCCESS)
        *minor = gpu->minor;
    return result;
}

int nvmlDeviceGetIndex(handle_t handle, unsigned int *index) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_gpu(&state, "nvmlDeviceGetIndex", handle, &gpu);
    if (result == SUCCESS)
        *index = (unsigned int)(gpu - state.gpus);
    return result;
}

/* What the processes on a device or slice have of its memory, as far as that is told; a card has that of its slices. */
static unsigned long long used_of(const state_t *state, const gpu_t *gpu) {
    unsigned long long used = 0;
    for (unsigned int i = 0; i < state->proc_count; i++) {
        const gpu_t *on = find(state, state->procs[i].uuid);
        int is_here = on && (on == gpu || strcmp(on->parent, gpu->uuid) == 0);
        if (is_here && state->procs[i].bytes != NOT_AVAILABLE)
            used += state->procs[i].bytes;
    }
    return used < gpu->mem_mib << 20 ? used : gpu->mem_mib << 20;
}

int nvmlDeviceGetMemoryInfo(handle_t handle, memory_t *memory) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_device(&state, "nvmlDeviceGetMemoryInfo", handle, &gpu);
    if (result == SUCCESS) {
        memory->total = gpu->mem_mib << 20;
        memory->used = used_of(&state, gpu);
        memory->free = memory->total - memory->used;
    }
    return result;
}

int nvmlDeviceGetMemoryInfo_v2(handle_t handle, memory_v2_t *memory) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_device(&state, "nvmlDeviceGetMemoryInfo_v2", handle, &gpu);
    if (result != SUCCESS)
        return result;
    if (memory->version != (sizeof *memory | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    memory->total = gpu->mem_mib << 20;
    memory->reserved = 0;
    memory->used = used_of(&state, gpu);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(handle_t handle, unsigned int *current, unsigned int *pending) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_gpu(&state, "nvmlDeviceGetMigMode", handle, &gpu);
    if (result == SUCCESS)
        *current = *pending = has_mig(&state, gpu);
    return result;
}

int nvmlDeviceGetMaxMigDeviceCount(handle_t handle, unsigned int *count) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_gpu(&state, "nvmlDeviceGetMaxMigDeviceCount", handle, &gpu);
    if (result == SUCCESS)
        *count = MAX_SLICES_OF_GPU;
    return result;
}

int nvmlDeviceGetMigDeviceHandleByIndex(handle_t handle, unsigned int index, handle_t *slice) {
    state_t state;
    const gpu_t *gpu, *found;
    int result = enter_gpu(&state, "nvmlDeviceGetMigDeviceHandleByIndex", handle, &gpu);
    if (result != SUCCESS)
        return result;
    if (index >= MAX_SLICES_OF_GPU)
        return INVALID_ARGUMENT;
    found = slice_of(&state, gpu, index);
    if (!found)
        return NOT_FOUND;
    *slice = handle_of(found->uuid);
    return *slice ? SUCCESS : UNKNOWN;
}

/* One set of events is enough for a process; which devices it has, and how many lines it has seen. */
static struct {
    char uuids[MAX_GPUS][WORD];
    unsigned int count, seen;
} event_set;

static const unsigned long long XID_CRITICAL = 8, WAIT_STEP_US = 10000, STEPS_A_READING = 10;

/* Whether the file has changed since the last call: to read it at each step would be most of what waiting costs. Two
 * writes of one size within a clock tick look like one, so a wait reads the file every 100 ms as well. */
static int has_changed(void) {
    static struct stat last;
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    memset(&now, 0, sizeof now);
    if (path && stat(path, &now) != 0)
        memset(&now, 0, sizeof now);
    if (now.st_ino == last.st_ino && now.st_size == last.st_size && now.st_mtim.tv_sec == last.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == last.st_mtim.tv_nsec)
        return 0;
    last = now;
    return 1;
}

int nvmlEventSetCreate(void **set) {
    state_t state;
    int result = enter(&state, "nvmlEventSetCreate", 1);
    if (result == SUCCESS)
        *set = &event_set;
    return result;
}

int nvmlEventSetFree(void *set) {
    state_t state;
    int result = enter(&state, "nvmlEventSetFree", 1);
    (void)set;
    if (result == SUCCESS)
        event_set.count = 0;
    return result;
}

int nvmlDeviceGetSupportedEventTypes(handle_t handle, unsigned long long *types) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_gpu(&state, "nvmlDeviceGetSupportedEventTypes", handle, &gpu);
    if (result == SUCCESS)
        *types = XID_CRITICAL;
    return result;
}

int nvmlDeviceRegisterEvents(handle_t handle, unsigned long long types, void *set) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_gpu(&state, "nvmlDeviceRegisterEvents", handle, &gpu);
    (void)set;
    if (result != SUCCESS)
        return result;
    if (types != XID_CRITICAL || event_set.count == MAX_GPUS)
        return INVALID_ARGUMENT;
    strcpy(event_set.uuids[event_set.count++], gpu->uuid);
    return SUCCESS;
}

static int is_registered(const char *uuid) {
    for (unsigned int i = 0; i < event_set.count; i++)
        if (strcmp(event_set.uuids[i], uuid) == 0)
            return 1;
    return 0;
}

int nvmlEventSetWait_v2(void *set, event_data_t *data, unsigned int timeout_ms) {
    state_t state;
    (void)set;
    for (unsigned long long waited_us = 0;; waited_us += WAIT_STEP_US) {
        int is_due = waited_us / WAIT_STEP_US % STEPS_A_READING == 0 || waited_us >= timeout_ms * 1000ull;
        if (!has_changed() && !is_due) {
            usleep(WAIT_STEP_US);
            continue;
        }
        int result = enter(&state, "nvmlEventSetWait_v2", 1);
        if (result != SUCCESS)
            return result;
        if (event_set.seen > state.event_count)
            event_set.seen = state.event_count;
        while (event_set.seen < state.event_count) {
            const event_t *event = &state.events[event_set.seen++];
            if (!is_registered(event->uuid))
                continue;
            data->device = handle_of(event->uuid);
            data->type = XID_CRITICAL;
            data->data = event->xid;
            data->gpu_instance = event->gpu_instance;
            data->compute_instance = event->compute_instance;
            return SUCCESS;
        }
        if (waited_us >= timeout_ms * 1000ull)
            return TIMEOUT;
        usleep(WAIT_STEP_US);
    }
}

static unsigned int procs_on(const state_t *state, const gpu_t *gpu) {
    unsigned int count = 0;
    for (unsigned int i = 0; i < state->proc_count; i++)
        count += strcmp(state->procs[i].uuid, gpu->uuid) == 0;
    return count;
}

int nvmlDeviceGetComputeRunningProcesses_v3(handle_t handle, unsigned int *count, process_t *processes) {
    state_t state;
    const gpu_t *gpu;
    unsigned int size, found = 0;
    int result = enter_device(&state, "nvmlDeviceGetComputeRunningProcesses_v3", handle, &gpu);
    if (result != SUCCESS)
        return result;
    size = *count;
    *count = procs_on(&state, gpu);
    if (*count > size)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < state.proc_count; i++)
        if (strcmp(state.procs[i].uuid, gpu->uuid) == 0)
            processes[found++] = (process_t){state.procs[i].pid, state.procs[i].bytes, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(handle_t handle, unsigned int *count, process_t *processes) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_device(&state, "nvmlDeviceGetGraphicsRunningProcesses_v3", handle, &gpu);
    (void)processes;
    if (result == SUCCESS)
        *count = 0;
    return result;
}

/* Of cards without MIG only, as with the driver. The sample of each process is of this moment. */
int nvmlDeviceGetProcessUtilization(handle_t handle, process_use_t *uses, unsigned int *count,
                                    unsigned long long since_us) {
    state_t state;
    const gpu_t *gpu;
    struct timespec now;
    unsigned long long now_us;
    unsigned int size, found = 0;
    int result = enter_gpu(&state, "nvmlDeviceGetProcessUtilization", handle, &gpu);
    if (result != SUCCESS)
        return result;
    if (slice_of(&state, gpu, 0))
        return NOT_SUPPORTED;
    timespec_get(&now, TIME_UTC);
    now_us = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    size = *count;
    *count = now_us > since_us ? procs_on(&state, gpu) : 0;
    if (*count == 0)
        return NOT_FOUND;
    if (!uses || *count > size)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < state.proc_count; i++)
        if (strcmp(state.procs[i].uuid, gpu->uuid) == 0)
            uses[found++] = (process_use_t){state.procs[i].pid, now_us, state.procs[i].sm, 0, 0, 0};
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(handle_t handle, rates_t *rates) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_gpu(&state, "nvmlDeviceGetUtilizationRates", handle, &gpu);
    if (result != SUCCESS)
        return result;
    if (slice_of(&state, gpu, 0))
        return NOT_SUPPORTED;
    rates->gpu = rates->memory = 0;
    for (unsigned int i = 0; i < state.proc_count; i++)
        if (strcmp(state.procs[i].uuid, gpu->uuid) == 0)
            rates->gpu += state.procs[i].sm;
    rates->gpu = rates->gpu < 100 ? rates->gpu : 100;
    return SUCCESS;
}

/* --- MIG instances ------------------------------------------------------------------------------------------------ */

typedef struct {
    char gpu[WORD];
    unsigned int gi, ci;
} *instance_handle_t;

typedef struct {
    unsigned int start, size;
} placement_t;

typedef struct {
    handle_t device;
    unsigned int id, profile;
    placement_t placement;
} gpu_instance_info_t;

typedef struct {
    unsigned int version, id, is_p2p, slice_count, instance_count, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mb;
    char name[WORD];
} gpu_instance_profile_t;

typedef struct {
    unsigned int version, id, slice_count, instance_count, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    char name[WORD];
} compute_instance_profile_t;

/* Slices of the compute instance profiles, by their number. */
static const unsigned int COMPUTE_SLICES[] = {1, 2, 3, 4, 7, 8, 6};
enum { COMPUTE_PROFILES = sizeof COMPUTE_SLICES / sizeof COMPUTE_SLICES[0] };

static unsigned int slices_of(const profile_t *profile) { return (unsigned int)strtoul(profile->name, NULL, 10); }

static instance_handle_t instance_handle(const char *gpu, unsigned int gi, unsigned int ci) {
    static struct {
        char gpu[WORD];
        unsigned int gi, ci;
    } handles[4096];
    static unsigned int used;
    for (unsigned int i = 0; i < used; i++)
        if (strcmp(handles[i].gpu, gpu) == 0 && handles[i].gi == gi && handles[i].ci == ci)
            return (instance_handle_t)&handles[i];
    if (used == sizeof handles / sizeof handles[0])
        return NULL;
    strcpy(handles[used].gpu, gpu);
    handles[used].gi = gi;
    handles[used].ci = ci;
    return (instance_handle_t)&handles[used++];
}

static int enter_instance(state_t *state, const char *function, instance_handle_t handle, const gpu_instance_t **gi,
                          const profile_t **profile) {
    int result = enter(state, function, 1);
    if (result != SUCCESS)
        return result;
    if (!handle)
        return INVALID_ARGUMENT;
    *gi = instance_of(state, handle->gpu, handle->gi);
    *profile = *gi ? profile_of(state, (*gi)->gpu, (*gi)->profile) : NULL;
    return *profile ? SUCCESS : NOT_FOUND;
}

/* Add a line to the file, or take out those that begin with one, of as many words. */
static int change_state(const char *added, const char *removed) {
    static char before[MAX_STATE], after[2 * MAX_STATE];
    const char *path = getenv("FAKE_NVML_STATE");
    int file = path ? open(path, O_RDWR) : -1, result = UNKNOWN;
    size_t kept = 0, length;
    ssize_t size;
    if (file < 0)
        return DRIVER_NOT_LOADED;
    flock(file, LOCK_EX);
    size = read(file, before, sizeof before - 1);
    if (size >= 0 && (size_t)size < sizeof before - 1) {
        before[size] = '\0';
        for (char *line = before; *line; line += length) {
            char *end = strchr(line, '\n');
            size_t text = end ? (size_t)(end - line) : strlen(line);
            int goes = text == 0 || (removed && strncmp(line, removed, strlen(removed)) == 0);
            length = text + (end ? 1 : 0);
            if (goes)
                continue;
            memcpy(after + kept, line, text);
            kept += text;
            after[kept++] = '\n';
        }
        if (added) {
            memcpy(after + kept, added, strlen(added));
            kept += strlen(added);
        }
        /* Never shorter: a reader in between sees no rest of what was there. */
        while (kept < (size_t)size)
            after[kept++] = '\n';
        if (pwrite(file, after, kept, 0) == (ssize_t)kept)
            result = SUCCESS;
    }
    close(file);
    return result;
}

int nvmlDeviceGetGpuInstanceId(handle_t handle, unsigned int *id) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_device(&state, "nvmlDeviceGetGpuInstanceId", handle, &gpu);
    if (result == SUCCESS && gpu->gpu_instance == NO_INSTANCE)
        return NOT_SUPPORTED;
    if (result == SUCCESS)
        *id = gpu->gpu_instance;
    return result;
}

int nvmlDeviceGetComputeInstanceId(handle_t handle, unsigned int *id) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_device(&state, "nvmlDeviceGetComputeInstanceId", handle, &gpu);
    if (result == SUCCESS && gpu->compute_instance == NO_INSTANCE)
        return NOT_SUPPORTED;
    if (result == SUCCESS)
        *id = gpu->compute_instance;
    return result;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(handle_t handle, unsigned int id, gpu_instance_profile_t *info) {
    state_t state;
    const gpu_t *gpu;
    const profile_t *profile;
    int result = enter_gpu(&state, "nvmlDeviceGetGpuInstanceProfileInfoV", handle, &gpu);
    if (result != SUCCESS)
        return result;
    if (info->version != (sizeof *info | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    profile = profile_of(&state, gpu->uuid, id);
    if (!profile)
        return NOT_SUPPORTED;
    info->id = profile->id;
    info->slice_count = slices_of(profile);
    info->instance_count = profile->most;
    info->memory_mb = profile->mem_mib;
    snprintf(info->name, sizeof info->name, "MIG %.80s", profile->name);
    return SUCCESS;
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle_t handle, unsigned int id, placement_t *places,
                                                  unsigned int *count) {
    state_t state;
    const gpu_t *gpu;
    const profile_t *profile;
    int result = enter_gpu(&state, "nvmlDeviceGetGpuInstancePossiblePlacements_v2", handle, &gpu);
    if (result != SUCCESS)
        return result;
    profile = profile_of(&state, gpu->uuid, id);
    if (!profile)
        return NOT_SUPPORTED;
    *count = profile->start_count;
    for (unsigned int i = 0; places && i < profile->start_count; i++)
        places[i] = (placement_t){profile->starts[i], profile->size};
    return SUCCESS;
}

int nvmlDeviceGetGpuInstances(handle_t handle, unsigned int profile, instance_handle_t *instances,
                              unsigned int *count) {
    state_t state;
    const gpu_t *gpu;
    int result = enter_gpu(&state, "nvmlDeviceGetGpuInstances", handle, &gpu);
    if (result != SUCCESS)
        return result;
    *count = 0;
    for (unsigned int i = 0; i < state.instance_count; i++)
        if (strcmp(state.instances[i].gpu, gpu->uuid) == 0 && state.instances[i].profile == profile)
            instances[(*count)++] = instance_handle(gpu->uuid, state.instances[i].id, NO_INSTANCE);
    return SUCCESS;
}

int nvmlGpuInstanceGetInfo(instance_handle_t handle, gpu_instance_info_t *info) {
    state_t state;
    const gpu_instance_t *gi;
    const profile_t *profile;
    int result = enter_instance(&state, "nvmlGpuInstanceGetInfo", handle, &gi, &profile);
    if (result == SUCCESS)
        *info = (gpu_instance_info_t){handle_of(gi->gpu), gi->id, gi->profile, {gi->start, profile->size}};
    return result;
}

/* What a GPU instance takes of the memory slices, as bits. */
static unsigned int bits_of(const profile_t *profile, unsigned int start) {
    return ((1u << profile->size) - 1) << start;
}

int nvmlDeviceCreateGpuInstanceWithPlacement(handle_t handle, unsigned int id, const placement_t *place,
                                             instance_handle_t *made) {
    state_t state;
    const gpu_t *gpu;
    const profile_t *profile;
    char line[512];
    unsigned int taken = 0, same = 0, is_place = 0, number = 1;
    int result = enter_gpu(&state, "nvmlDeviceCreateGpuInstanceWithPlacement", handle, &gpu);
    if (result != SUCCESS)
        return result;
    profile = profile_of(&state, gpu->uuid, id);
    if (!profile)
        return NOT_SUPPORTED;
    for (unsigned int i = 0; i < profile->start_count; i++)
        is_place |= profile->starts[i] == place->start && profile->size == place->size;
    if (!is_place)
        return INVALID_ARGUMENT;
    for (unsigned int i = 0; i < state.instance_count; i++) {
        const profile_t *its = profile_of(&state, gpu->uuid, state.instances[i].profile);
        if (strcmp(state.instances[i].gpu, gpu->uuid) != 0 || !its)
            continue;
        taken |= bits_of(its, state.instances[i].start);
        same += state.instances[i].profile == id;
    }
    if (taken & bits_of(profile, place->start) || same >= profile->most)
        return INSUFFICIENT_RESOURCES;
    while (instance_of(&state, gpu->uuid, number))
        number++;
    snprintf(line, sizeof line, "gi %s %u %u %u\n", gpu->uuid, number, id, place->start);
    *made = instance_handle(gpu->uuid, number, NO_INSTANCE);
    return change_state(line, NULL);
}

int nvmlGpuInstanceDestroy(instance_handle_t handle) {
    state_t state;
    const gpu_instance_t *gi;
    const profile_t *profile;
    char line[512];
    int result = enter_instance(&state, "nvmlGpuInstanceDestroy", handle, &gi, &profile);
    if (result != SUCCESS)
        return result;
    for (unsigned int i = 0; i < state.slice_count; i++)
        if (strcmp(state.slices[i].parent, gi->gpu) == 0 && state.slices[i].gpu_instance == gi->id)
            return IN_USE;
    snprintf(line, sizeof line, "gi %s %u ", gi->gpu, gi->id);
    return change_state(NULL, line);
}

int nvmlGpuInstanceGetComputeInstanceProfileInfoV(instance_handle_t handle, unsigned int number, unsigned int engine,
                                                  compute_instance_profile_t *info) {
    state_t state;
    const gpu_instance_t *gi;
    const profile_t *profile;
    int result = enter_instance(&state, "nvmlGpuInstanceGetComputeInstanceProfileInfoV", handle, &gi, &profile);
    if (result != SUCCESS)
        return result;
    if (info->version != (sizeof *info | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    if (engine != 0 || number >= COMPUTE_PROFILES || COMPUTE_SLICES[number] > slices_of(profile))
        return NOT_SUPPORTED;
    info->id = number;
    info->slice_count = COMPUTE_SLICES[number];
    info->instance_count = slices_of(profile) / COMPUTE_SLICES[number];
    return SUCCESS;
}

/* Only the one that has all of the GPU instance can be made. */
int nvmlGpuInstanceCreateComputeInstance(instance_handle_t handle, unsigned int number, instance_handle_t *made) {
    state_t state;
    const gpu_instance_t *gi;
    const profile_t *profile;
    char line[512];
    int result = enter_instance(&state, "nvmlGpuInstanceCreateComputeInstance", handle, &gi, &profile);
    if (result != SUCCESS)
        return result;
    if (number >= COMPUTE_PROFILES || COMPUTE_SLICES[number] != slices_of(profile))
        return NOT_SUPPORTED;
    for (unsigned int i = 0; i < state.slice_count; i++)
        if (strcmp(state.slices[i].parent, gi->gpu) == 0 && state.slices[i].gpu_instance == gi->id)
            return INSUFFICIENT_RESOURCES;
    snprintf(line, sizeof line, "ci %s %u 0 MIG-%s-%u-0\n", gi->gpu, gi->id, gi->gpu, gi->id);
    *made = instance_handle(gi->gpu, gi->id, 0);
    return change_state(line, NULL);
}

int nvmlGpuInstanceGetComputeInstances(instance_handle_t handle, unsigned int number, instance_handle_t *instances,
                                       unsigned int *count) {
    state_t state;
    const gpu_instance_t *gi;
    const profile_t *profile;
    int result = enter_instance(&state, "nvmlGpuInstanceGetComputeInstances", handle, &gi, &profile);
    if (result != SUCCESS)
        return result;
    *count = 0;
    if (number >= COMPUTE_PROFILES || COMPUTE_SLICES[number] != slices_of(profile))
        return SUCCESS;
    for (unsigned int i = 0; i < state.slice_count; i++)
        if (strcmp(state.slices[i].parent, gi->gpu) == 0 && state.slices[i].gpu_instance == gi->id)
            instances[(*count)++] = instance_handle(gi->gpu, gi->id, state.slices[i].compute_instance);
    return SUCCESS;
}

int nvmlComputeInstanceDestroy(instance_handle_t handle) {
    state_t state;
    const gpu_instance_t *gi;
    const profile_t *profile;
    char line[512];
    int result = enter_instance(&state, "nvmlComputeInstanceDestroy", handle, &gi, &profile);
    if (result != SUCCESS)
        return result;
    for (unsigned int i = 0; i < state.slice_count; i++) {
        const gpu_t *slice = &state.slices[i];
        int is_it = strcmp(slice->parent, gi->gpu) == 0 && slice->gpu_instance == gi->id;
        if (is_it && procs_on(&state, slice))
            return IN_USE;
    }
    snprintf(line, sizeof line, "ci %s %u %u ", gi->gpu, gi->id, handle->ci);
    return change_state(NULL, line);
}

/* --- Memory limits of control groups ------------------------------------------------------------------------------ */

typedef struct {
    const char *path;
    unsigned long long soft, hard;
} set_limits_t;

typedef struct {
    const char *path;
    unsigned long long soft, hard, used;
} get_limits_t;

static const unsigned long long NO_LIMIT = ~0ull;

/* A path as one word; 0 if it is too long, or has what a control group's name never has. */
static int escape(char *to, const char *path) {
    size_t used = 0;
    for (; *path; path++) {
        if (used + 5 > PATH || *path == '\n')
            return 0;
        if (*path == ' ' || *path == '\t' || *path == '\\')
            used += (size_t)snprintf(to + used, 5, "\\%03o", (unsigned char)*path);
        else
            to[used++] = *path;
    }
    to[used] = '\0';
    return used > 0;
}

static int is_there(const char *folder, const char *file) {
    char path[PATH + 16];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return stat(path, &found) == 0;
}

/* Whether a group is another one or lies below it. */
static int is_within(const char *path, const char *above) {
    size_t length = strlen(above);
    return strncmp(path, above, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

static const limit_t *limit_of(const limit_t *limits, unsigned int count, const char *uuid, const char *path) {
    for (unsigned int i = 0; i < count; i++)
        if (strcmp(limits[i].uuid, uuid) == 0 && strcmp(limits[i].path, path) == 0)
            return &limits[i];
    return NULL;
}

/* What stands before both functions: a card without slices, and a group that is there. */
static int enter_limits(state_t *state, const char *function, handle_t handle, const char *path, char *escaped,
                        const gpu_t **gpu) {
    int result = enter_gpu(state, function, handle, gpu);
    if (result != SUCCESS)
        return result;
    if (has_mig(state, *gpu))
        return NOT_SUPPORTED;
    if (!path || !escape(escaped, path))
        return INVALID_ARGUMENT;
    return is_there(path, ".") ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceSetMemoryLimits_v1(handle_t handle, set_limits_t *limits) {
    static state_t state;
    const gpu_t *gpu;
    char path[PATH], before[LINE], line[LINE + 64];
    int result = enter_limits(&state, "nvmlDeviceSetMemoryLimits_v1", handle, limits->path, path, &gpu);
    if (result != SUCCESS)
        return result;
    for (unsigned int i = 0; i < state.stuck_count; i++)
        if (strcmp(state.stuck[i], gpu->uuid) == 0)
            return SUCCESS;
    snprintf(before, sizeof before, "limit %s %s ", gpu->uuid, path);
    snprintf(line, sizeof line, "%s%llu %llu\n", before, limits->soft, limits->hard);
    return change_state(limits->hard == NO_LIMIT ? NULL : line, before);
}

int nvmlDeviceGetMemoryLimits_v1(handle_t handle, get_limits_t *limits) {
    static state_t state;
    const gpu_t *gpu;
    const limit_t *limit;
    char path[PATH], *end;
    int result = enter_limits(&state, "nvmlDeviceGetMemoryLimits_v1", handle, limits->path, path, &gpu);
    if (result != SUCCESS)
        return result;
    limits->used = 0;
    for (unsigned int i = 0; i < state.held_count; i++)
        if (strcmp(state.held[i].uuid, gpu->uuid) == 0 && is_within(state.held[i].path, path))
            limits->used += state.held[i].hard;
    limit = limit_of(state.limits, state.limit_count, gpu->uuid, path);
    while (!limit && !is_there(limits->path, "dmem.max") && (end = strrchr(path, '/')) && end > path) {
        *end = '\0';
        limit = limit_of(state.limits, state.limit_count, gpu->uuid, path);
    }
    limits->soft = limit ? limit->soft : 0;
    limits->hard = limit ? limit->hard : NO_LIMIT;
    return SUCCESS;
}

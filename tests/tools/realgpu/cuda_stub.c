/* A libcuda.so.1 for machines without a GPU, beside tools/nvml_stub: what a process allocates becomes a line of the
 * file $FAKE_NVML_STATE, so that the stub of NVML shows it. The first device of the file is the one that is used.
 * Error codes: CUDA driver API.
 */

#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100, ILLEGAL_ADDRESS = 700, NO_MPS = 805 };
enum { CONTEXT_MIB = 300, WORD = 96, ALL_SMS = 132 };
enum { LIMIT_MIB = 4096, LIMIT_SMS = 33 };

static char uuid[WORD];
static unsigned long long total_mib;
static int is_broken;

/* What $FAKE_CUDA_UNDER_MPS says of clients whose pipe directory is there: "broken" or "limited". */
static int under_mps(const char *how) {
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY"), *said = getenv("FAKE_CUDA_UNDER_MPS");
    return pipes && said && access(pipes, F_OK) == 0 && strcmp(said, how) == 0;
}

static void append(const char *line) {
    FILE *file = fopen(getenv("FAKE_NVML_STATE"), "a");
    if (!file)
        return;
    flock(fileno(file), LOCK_EX);
    fputs(line, file);
    fclose(file);
}

static unsigned long long used_mib(void) {
    FILE *file = fopen(getenv("FAKE_NVML_STATE"), "r");
    char line[512];
    unsigned long long used = 0, mib;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "proc %*u %*s %llu", &mib) == 1)
            used += mib;
    if (file)
        fclose(file);
    return used;
}

int cuInit(unsigned int flags) {
    FILE *file = fopen(getenv("FAKE_NVML_STATE"), "r");
    char line[512];
    (void)flags;
    if (under_mps("broken"))
        return NO_MPS;
    while (file && fgets(line, sizeof line, file) && !total_mib)
        sscanf(line, "gpu %95s %*s %llu", uuid, &total_mib);
    if (file)
        fclose(file);
    return total_mib ? SUCCESS : NO_DEVICE;
}

int cuDeviceGet(int *device, int number) { return *device = number, SUCCESS; }

int cuDeviceGetAttribute(int *found, int which, int device) {
    (void)device;
    *found = which != 16 ? 0 : under_mps("limited") ? LIMIT_SMS : ALL_SMS;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { return (void)device, *context = uuid, SUCCESS; }

int cuCtxSetCurrent(void *context) { return context == uuid ? SUCCESS : NO_DEVICE; }

int cuMemAlloc_v2(unsigned long long *pointer, size_t size) {
    char line[256];
    unsigned long long mib = (size >> 20) + CONTEXT_MIB;
    if (used_mib() + mib > total_mib || (under_mps("limited") && mib > LIMIT_MIB))
        return OUT_OF_MEMORY;
    snprintf(line, sizeof line, "proc %d %s %llu 7\n", getpid(), uuid, mib);
    append(line);
    *pointer = 1 << 20;
    return SUCCESS;
}

int cuMemAllocManaged(unsigned long long *pointer, size_t size, unsigned int flags) {
    return (void)size, (void)flags, *pointer = 1 << 20, SUCCESS;
}

int cuMemsetD8_v2(unsigned long long pointer, unsigned char value, size_t size) {
    return (void)value, (void)size, pointer ? SUCCESS : ILLEGAL_ADDRESS;
}

int cuMemGetInfo_v2(size_t *unused, size_t *total) {
    *unused = (total_mib - used_mib()) << 20;
    *total = total_mib << 20;
    return SUCCESS;
}

int cuModuleLoadData(void **module, const void *image) {
    return *module = uuid, strstr(image, ".entry fault") ? SUCCESS : NO_DEVICE;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    return *function = module, strcmp(name, "fault") == 0 ? SUCCESS : NO_DEVICE;
}

int cuLaunchKernel(void *function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                   unsigned int bz, unsigned int shared, void *stream, void **arguments, void **extra) {
    char line[256];
    (void)function, (void)stream, (void)arguments, (void)extra;
    if (gx != 1 || gy != 1 || gz != 1 || bx != 1 || by != 1 || bz != 1 || shared != 0)
        return NO_DEVICE;
    snprintf(line, sizeof line, "event %s 31\n", uuid);
    append(line);
    is_broken = 1;
    return SUCCESS;
}

int cuCtxSynchronize(void) { return is_broken ? ILLEGAL_ADDRESS : SUCCESS; }

int cuGetErrorName(int code, const char **name) {
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == NO_MPS ? "CUDA_ERROR_MPS_CONNECTION_FAILED"
                                      : "CUDA_ERROR_NO_DEVICE";
    return SUCCESS;
}

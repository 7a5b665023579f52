/* A CUDA driver (libcuda.so.1) or, with FAKE_RUNTIME, a CUDA runtime (libcudart.so.13) without a GPU.

   There is one device: FAKE_ATTRIBUTES, FAKE_NAME and FAKE_MEMORY_BYTES say which. Its memory is memory of this
   machine with guards around it, its modules are emulator libraries, alone or behind a cubin of the same source,
   and a launch is over when it returns. It refuses what a driver refuses. Types and numbers are those
   of cuda.h and cuda_runtime_api.h (CUDA 13), declared here so that no CUDA installation is needed. The state is
   in the driver; the runtime is loaded after it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "guarded.h"
#include "kernel.h"
#include "tensor_map.h"

typedef int result; /* CUresult and cudaError_t share their numbers where they are used here */
enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_HANDLE = 400, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, MISALIGNED = 716, LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900
};
enum { CAPTURE_RELAXED = 2 }; /* CUstreamCaptureMode */
/* CUdevice_attribute and cudaDeviceAttr share these numbers too. */
enum {
    MAX_THREADS_PER_BLOCK = 1, MAX_BLOCK_X = 2, MAX_BLOCK_Y = 3, MAX_BLOCK_Z = 4, MAX_GRID_X = 5, MAX_GRID_Y = 6,
    MAX_GRID_Z = 7, SHARED_PER_BLOCK = 8, SHARED_PER_BLOCK_OPTIN = 97, ATTRIBUTES = 160
};
enum { MAX_STREAMS = 4096 };
enum memory_use { LIVE_BYTES, LIMIT_BYTES, TOTAL_BYTES };

struct fake_launch {
    char kernel[128];
    unsigned grid[3], block[3], cluster, shared_bytes;
    result code;
    uint64_t stream;
};

/* State, in the driver. */
int *fake_attribute(int attribute);
char *fake_device_name(void);
uint64_t *fake_memory(enum memory_use use);
unsigned char *fake_streams(void); /* 1 where a stream with this number lives */

#ifndef FAKE_RUNTIME

static int attributes[ATTRIBUTES] = FAKE_ATTRIBUTES;
static char device_name[256] = FAKE_NAME;
static uint64_t memory[3] = {[LIMIT_BYTES] = FAKE_MEMORY_BYTES, [TOTAL_BYTES] = FAKE_MEMORY_BYTES};
static unsigned char streams[MAX_STREAMS] = {1, 1, 1}; /* default, legacy, per thread */
static struct fake_launch *launches;
static size_t launch_count, launch_room;
static char failure[512];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int *fake_attribute(int attribute) { return attribute >= 0 && attribute < ATTRIBUTES ? &attributes[attribute] : NULL; }
char *fake_device_name(void) { return device_name; }
uint64_t *fake_memory(enum memory_use use) { return &memory[use]; }
unsigned char *fake_streams(void) { return streams; }
const char *fake_failure(void) { return failure; }
size_t fake_launches(void) { return launch_count; }
const struct fake_launch *fake_launch_at(size_t i) { return i < launch_count ? &launches[i] : NULL; }
void fake_forget(void) { launch_count = 0; }

/* An image is MAGIC, the number of bytes (8, little endian) and an emulator library. */
static const char MAGIC[8] = {'E', 'M', 'U', 'L', 'A', 'T', 'E', 'D'};
enum { HEADER_BYTES = 16, DEFAULT_SHARED_BYTES = 48 * 1024 };

struct function {
    const struct emulated_kernel *kernel;
    int max_dynamic_bytes; /* raised by cuFuncSetAttribute */
    struct function *next;
};
struct module {
    void *library;
    struct function *functions;
};
struct launch_attribute { /* CUlaunchAttribute */
    unsigned id, padding;
    union {
        unsigned cluster[3];
        char bytes[64];
    } value;
};
struct launch_config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    const struct launch_attribute *attributes;
    unsigned attribute_count;
};
enum { CLUSTER_DIMENSION = 4, COMPUTE_CAPABILITY_MAJOR = 75 };

result cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
result cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
result cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
result cuDeviceGet(int *device, int ordinal) { return ordinal ? INVALID_DEVICE : (*device = 0, SUCCESS); }
result cuDeviceGetName(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "%s", device_name);
    return device ? INVALID_DEVICE : SUCCESS;
}
result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const int *found = fake_attribute(attribute);
    *value = found ? *found : 0;
    return device ? INVALID_DEVICE : SUCCESS;
}

static void *open_image(const unsigned char *image)
{
    char path[] = "/tmp/emulated-XXXXXX";
    uint64_t bytes;
    memcpy(&bytes, image + sizeof MAGIC, sizeof bytes);
    const int file = mkstemp(path);
    if (file < 0)
        return NULL;
    uint64_t done = 0;
    while (done < bytes) {
        const ssize_t wrote = write(file, image + HEADER_BYTES + done, bytes - done);
        if (wrote <= 0)
            break;
        done += (uint64_t)wrote;
    }
    close(file);
    void *library = done == bytes ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    return library;
}

/* Where a cubin ends: behind the last of its tables and sections. */
static size_t elf_bytes(const unsigned char *image)
{
    const Elf64_Ehdr *file = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + file->e_shoff);
    size_t end = file->e_shoff + (size_t)file->e_shnum * file->e_shentsize;
    const size_t programs = file->e_phoff + (size_t)file->e_phnum * file->e_phentsize;
    if (programs > end)
        end = programs;
    for (int i = 0; i < file->e_shnum; ++i)
        if (sections[i].sh_type != SHT_NOBITS && sections[i].sh_offset + sections[i].sh_size > end)
            end = sections[i].sh_offset + sections[i].sh_size;
    return end;
}

/* A graph is captured; a module may be loaded meanwhile only if its mode, or this thread's, is relaxed. */
static struct graph *capturing;
static int captured_mode;
static _Thread_local int thread_mode;

result cuThreadExchangeStreamCaptureMode(int *mode)
{
    const int before = thread_mode;
    if (*mode < 0 || *mode > CAPTURE_RELAXED)
        return INVALID_VALUE;
    thread_mode = *mode;
    *mode = before;
    return SUCCESS;
}

result cuModuleLoadData(void **loaded, const void *image)
{
    if (capturing && captured_mode != CAPTURE_RELAXED && thread_mode != CAPTURE_RELAXED)
        return CAPTURE_UNSUPPORTED;
    if (memcmp(image, ELFMAG, SELFMAG) == 0)
        image = (const char *)image + elf_bytes(image);
    if (memcmp(image, MAGIC, sizeof MAGIC)) {
        snprintf(failure, sizeof failure, "the image of a module is no emulator library");
        return INVALID_IMAGE;
    }
    struct module *module = calloc(1, sizeof *module);
    if (module == NULL || (module->library = open_image(image)) == NULL) {
        snprintf(failure, sizeof failure, "a module cannot be loaded: %s", dlerror());
        free(module);
        return INVALID_IMAGE;
    }
    *loaded = module;
    return SUCCESS;
}

result cuModuleUnload(void *unloaded)
{
    struct module *module = unloaded;
    while (module->functions) {
        struct function *next = module->functions->next;
        free(module->functions);
        module->functions = next;
    }
    dlclose(module->library);
    free(module);
    return SUCCESS;
}

result cuModuleGetFunction(void **found, void *of, const char *name)
{
    struct module *module = of;
    char symbol[256];
    snprintf(symbol, sizeof symbol, "emu_kernel_%s", name);
    const struct emulated_kernel *kernel = dlsym(module->library, symbol);
    if (kernel == NULL)
        return NOT_FOUND;
    struct function *function = module->functions;
    while (function && function->kernel != kernel)
        function = function->next;
    if (function == NULL) {
        function = calloc(1, sizeof *function);
        if (function == NULL)
            return OUT_OF_MEMORY;
        function->kernel = kernel;
        function->max_dynamic_bytes = DEFAULT_SHARED_BYTES - (int)kernel->static_bytes;
        function->next = module->functions;
        module->functions = function;
    }
    *found = function;
    return SUCCESS;
}

result cuFuncSetAttribute(void *of, int attribute, int value)
{
    struct function *function = of;
    if (attribute != 8) /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
        return SUCCESS;
    if (value < 0 || value + (int)function->kernel->static_bytes > attributes[SHARED_PER_BLOCK_OPTIN])
        return INVALID_VALUE;
    function->max_dynamic_bytes = value;
    return SUCCESS;
}

static result check(const struct launch_config *config, const struct function *function)
{
    const uint64_t stream = (uint64_t)(uintptr_t)config->stream;
    uint64_t threads = 1;
    for (int axis = 0; axis < 3; ++axis) {
        threads *= config->block[axis];
        if (config->grid[axis] < 1 || config->grid[axis] > (unsigned)attributes[MAX_GRID_X + axis] ||
            config->block[axis] < 1 || config->block[axis] > (unsigned)attributes[MAX_BLOCK_X + axis])
            return INVALID_VALUE;
    }
    if (threads > (unsigned)attributes[MAX_THREADS_PER_BLOCK] || threads > function->kernel->max_threads ||
        config->shared_bytes > (unsigned)function->max_dynamic_bytes)
        return INVALID_VALUE;
    return stream < MAX_STREAMS && streams[stream] ? SUCCESS : INVALID_HANDLE;
}

/* Blocks of a cluster along x; 0 if such clusters cannot be had. */
static unsigned cluster_of(const struct launch_config *config)
{
    for (unsigned i = 0; i < config->attribute_count; ++i) {
        const unsigned *cluster = config->attributes[i].value.cluster;
        if (config->attributes[i].id != CLUSTER_DIMENSION)
            continue;
        const int one = cluster[1] == 1 && cluster[2] == 1 && cluster[0] >= 1 && cluster[0] <= 8;
        return one && attributes[COMPUTE_CAPABILITY_MAJOR] >= 9 && config->grid[0] % cluster[0] == 0 ? cluster[0] : 0;
    }
    return 1;
}

static void record(const struct launch_config *config, unsigned cluster, const char *kernel, result code)
{
    if (launch_count == launch_room) {
        const size_t room = launch_room ? 2 * launch_room : 64;
        struct fake_launch *grown = realloc(launches, room * sizeof *grown);
        if (grown == NULL)
            return;
        launches = grown;
        launch_room = room;
    }
    struct fake_launch *entry = &launches[launch_count++];
    snprintf(entry->kernel, sizeof entry->kernel, "%s", kernel);
    memcpy(entry->grid, config->grid, sizeof entry->grid);
    memcpy(entry->block, config->block, sizeof entry->block);
    entry->cluster = cluster;
    entry->shared_bytes = config->shared_bytes;
    entry->stream = (uint64_t)(uintptr_t)config->stream;
    entry->code = code;
}

/* Streams are numbers; what is put on one is done at once. */
result cuStreamCreate(void **stream, unsigned flags)
{
    static uintptr_t created = 2; /* numbers are not used again */
    (void)flags;
    if (created + 1 == MAX_STREAMS)
        return OUT_OF_MEMORY;
    streams[++created] = 1;
    *stream = (void *)created;
    return SUCCESS;
}

/* A graph is the list of launches that were asked for while its stream was captured. */
enum { MAX_ARGUMENTS = 32 };
struct node {
    struct launch_config config;
    struct launch_attribute attributes[4];
    void *function, *arguments[MAX_ARGUMENTS];
    struct node *next;
};
struct graph {
    struct node *first, **end;
};
static void *captured_stream;

static void forget_graph(struct graph *graph)
{
    for (struct node *node = graph->first, *next; node; node = next) {
        next = node->next;
        for (int i = 0; i < MAX_ARGUMENTS; ++i)
            free(node->arguments[i]);
        free(node);
    }
    free(graph);
}

static result capture(const struct launch_config *config, void *of, void **arguments)
{
    const struct emulated_kernel *kernel = ((const struct function *)of)->kernel;
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return OUT_OF_MEMORY;
    *capturing->end = node;
    capturing->end = &node->next;
    node->config = *config;
    node->function = of;
    if (config->attribute_count > 4)
        return NOT_SUPPORTED;
    if (config->attribute_count)
        memcpy(node->attributes, config->attributes, config->attribute_count * sizeof *config->attributes);
    for (int i = 0; kernel->argument_bytes[i]; ++i) {
        void *copy = i < MAX_ARGUMENTS ? aligned_alloc(64, (kernel->argument_bytes[i] + 63) / 64 * 64) : NULL;
        if (copy == NULL)
            return OUT_OF_MEMORY;
        node->arguments[i] = memcpy(copy, arguments[i], kernel->argument_bytes[i]);
    }
    return SUCCESS;
}

result cuStreamBeginCapture_v2(void *stream, int mode)
{
    const uint64_t number = (uint64_t)(uintptr_t)stream;
    if (number <= 2 || number >= MAX_STREAMS || !streams[number] || capturing || mode < 0 || mode > 2)
        return INVALID_VALUE;
    capturing = calloc(1, sizeof *capturing);
    if (capturing == NULL)
        return OUT_OF_MEMORY;
    capturing->end = &capturing->first;
    captured_stream = stream;
    captured_mode = mode;
    return SUCCESS;
}
result cuStreamEndCapture(void *stream, void **graph)
{
    if (capturing == NULL || stream != captured_stream)
        return INVALID_VALUE;
    *graph = capturing;
    capturing = NULL;
    return SUCCESS;
}
/* What is instantiated takes the launches over. */
result cuGraphInstantiateWithFlags(void **executable, struct graph *graph, uint64_t flags)
{
    struct graph *made = calloc(1, sizeof *made);
    if (flags || made == NULL)
        return INVALID_VALUE;
    made->first = graph->first;
    graph->first = NULL;
    *executable = made;
    return SUCCESS;
}
result cuGraphDestroy(struct graph *graph) { return forget_graph(graph), SUCCESS; }
result cuGraphExecDestroy(struct graph *graph) { return forget_graph(graph), SUCCESS; }

result cuLaunchKernelEx(const struct launch_config *config, void *of, void **arguments, void **extra);

result cuGraphLaunch(const struct graph *graph, void *stream)
{
    for (struct node *node = graph->first; node; node = node->next) {
        struct launch_config config = node->config;
        config.stream = stream;
        config.attributes = node->attributes;
        const result code = cuLaunchKernelEx(&config, node->function, node->arguments, NULL);
        if (code != SUCCESS)
            return code;
    }
    return SUCCESS;
}

result cuLaunchKernelEx(const struct launch_config *config, void *of, void **arguments, void **extra)
{
    const struct function *function = of;
    const struct emulated_kernel *kernel = function->kernel;
    (void)extra;
    if (capturing && config->stream == captured_stream)
        return capture(config, of, arguments);
    pthread_mutex_lock(&lock);
    const unsigned cluster = cluster_of(config);
    result code = cluster ? check(config, function) : INVALID_VALUE;
    if (code == SUCCESS) {
        code = kernel->launch(kernel, config->grid, config->block, cluster, config->shared_bytes, arguments);
        if (code != SUCCESS) {
            snprintf(failure, sizeof failure, "%s", kernel->failure());
            fprintf(stderr, "stub CUDA driver: %s\n", failure);
        }
    }
    record(config, cluster, kernel->name, code);
    pthread_mutex_unlock(&lock);
    return code;
}

result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared_bytes, void *stream, void **arguments, void **extra)
{
    const struct launch_config config = {{gx, gy, gz}, {bx, by, bz}, shared_bytes, stream, NULL, 0};
    return cuLaunchKernelEx(&config, function, arguments, extra);
}

/* Work is over when it was asked for, so events need only hold the time at which they were recorded. */
static result stream_at(void *stream)
{
    const uint64_t number = (uint64_t)(uintptr_t)stream;
    return number < MAX_STREAMS && streams[number] ? SUCCESS : INVALID_HANDLE;
}
result cuCtxSynchronize(void) { return SUCCESS; }
result cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    return (*event = calloc(1, sizeof(struct timespec))) ? SUCCESS : OUT_OF_MEMORY;
}
result cuEventDestroy(void *event) { return free(event), SUCCESS; }
result cuEventRecord(void *event, void *stream)
{
    clock_gettime(CLOCK_MONOTONIC, event);
    return stream_at(stream);
}
result cuEventSynchronize(void *event) { return (void)event, SUCCESS; }
result cuEventQuery(void *event) { return (void)event, SUCCESS; }
result cuEventElapsedTime(float *milliseconds, void *from, void *to)
{
    const struct timespec *first = from, *last = to;
    *milliseconds = (float)((double)(last->tv_sec - first->tv_sec) * 1e3 +
                            (double)(last->tv_nsec - first->tv_nsec) / 1e6);
    return SUCCESS;
}

result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *extents,
                              const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                              int swizzle, int promotion, int fill)
{
    const int halves = type == 6 || type == 9; /* CU_TENSOR_MAP_DATA_TYPE_FLOAT16, ..._BFLOAT16 */
    (void)promotion;
    if (!halves || interleave || fill || swizzle < 0)
        return NOT_SUPPORTED;
    return tensor_map_encode(map, rank, (uintptr_t)address, extents, strides, box, steps, (unsigned)swizzle);
}

static const struct { result code; const char *name, *text; } ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {MISALIGNED, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
};

result cuGetErrorName(result code, const char **name)
{
    *name = "CUDA_ERROR_UNKNOWN";
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; ++i)
        if (ERRORS[i].code == code)
            *name = ERRORS[i].name;
    return SUCCESS;
}
result cuGetErrorString(result code, const char **text)
{
    *text = "unknown error";
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; ++i)
        if (ERRORS[i].code == code)
            *text = ERRORS[i].text;
    return SUCCESS;
}

#else
#include "fake_runtime.h"
#endif

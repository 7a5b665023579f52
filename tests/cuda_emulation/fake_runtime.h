/* The runtime's half of fake_driver.c: devices, memory, streams and events. */

result cuGetErrorName(result code, const char **name);
result cuGetErrorString(result code, const char **text);

static result last_error;
static result returns(result code)
{
    if (code != SUCCESS)
        last_error = code;
    return code;
}

const char *cudaGetErrorName(result code)
{
    const char *name;
    cuGetErrorName(code, &name);
    return name;
}
const char *cudaGetErrorString(result code)
{
    const char *text;
    cuGetErrorString(code, &text);
    return text;
}
result cudaPeekAtLastError(void) { return last_error; }
result cudaGetLastError(void)
{
    const result code = last_error;
    last_error = SUCCESS;
    return code;
}

result cudaRuntimeGetVersion(int *version) { return *version = 13000, SUCCESS; }
result cudaDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
result cudaGetDeviceCount(int *count) { return *count = 1, SUCCESS; }
result cudaGetDevice(int *device) { return *device = 0, SUCCESS; }
result cudaSetDevice(int device) { return returns(device ? INVALID_DEVICE : SUCCESS); }
result cudaDeviceSynchronize(void) { return SUCCESS; }
result cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    const int *found = fake_attribute(attribute);
    *value = found ? *found : 0;
    return returns(device ? INVALID_DEVICE : SUCCESS);
}

/* The start of cudaDeviceProp; the caller's struct is longer. */
struct device_properties {
    char name[256], uuid[16], luid[8];
    unsigned node_mask;
    size_t total_bytes, shared_bytes;
    int registers, warp_size;
    size_t pitch_bytes;
    int threads, block[3], grid[3];
};
result cudaGetDeviceProperties(struct device_properties *properties, int device)
{
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "%s", fake_device_name());
    properties->total_bytes = *fake_memory(TOTAL_BYTES);
    properties->shared_bytes = (size_t)*fake_attribute(SHARED_PER_BLOCK);
    properties->registers = *fake_attribute(12);
    properties->warp_size = *fake_attribute(10);
    properties->threads = *fake_attribute(MAX_THREADS_PER_BLOCK);
    for (int axis = 0; axis < 3; ++axis) {
        properties->block[axis] = *fake_attribute(MAX_BLOCK_X + axis);
        properties->grid[axis] = *fake_attribute(MAX_GRID_X + axis);
    }
    return returns(device ? INVALID_DEVICE : SUCCESS);
}

/* Allocations, each with guards around it. */
struct allocation {
    struct guarded memory;
    struct allocation *next;
};
static struct allocation *allocations;
static pthread_mutex_t allocating = PTHREAD_MUTEX_INITIALIZER;
enum { ALLOCATION_ALIGNMENT = 256 };

static result allocate(void **pointer, size_t bytes)
{
    uint64_t *live = fake_memory(LIVE_BYTES);
    if (bytes > *fake_memory(LIMIT_BYTES) || *live > *fake_memory(LIMIT_BYTES) - bytes)
        return OUT_OF_MEMORY;
    struct allocation *allocation = malloc(sizeof *allocation);
    if (allocation == NULL || !guarded_take(&allocation->memory, bytes ? bytes : 1, ALLOCATION_ALIGNMENT)) {
        free(allocation);
        return OUT_OF_MEMORY;
    }
    allocation->next = allocations;
    allocations = allocation;
    *live += allocation->memory.bytes;
    *pointer = allocation->memory.data;
    return SUCCESS;
}

static result deallocate(void *pointer)
{
    struct allocation **at = &allocations;
    while (*at && (*at)->memory.data != pointer)
        at = &(*at)->next;
    if (*at == NULL)
        return INVALID_VALUE;
    struct allocation *found = *at;
    *at = found->next;
    *fake_memory(LIVE_BYTES) -= found->memory.bytes;
    const result code = guarded_overrun(&found->memory) ? ILLEGAL_ADDRESS : SUCCESS;
    if (code != SUCCESS)
        fprintf(stderr, "stub CUDA runtime: something beside an allocation of %zu bytes was written\n",
                found->memory.bytes);
    guarded_release(&found->memory);
    free(found);
    return code;
}

result cudaMalloc(void **pointer, size_t bytes)
{
    pthread_mutex_lock(&allocating);
    const result code = allocate(pointer, bytes);
    pthread_mutex_unlock(&allocating);
    return returns(code);
}
result cudaFree(void *pointer)
{
    if (pointer == NULL)
        return SUCCESS;
    pthread_mutex_lock(&allocating);
    const result code = deallocate(pointer);
    pthread_mutex_unlock(&allocating);
    return returns(code);
}
result cudaMallocHost(void **pointer, size_t bytes)
{
    return returns(posix_memalign(pointer, ALLOCATION_ALIGNMENT, bytes ? bytes : 1) ? OUT_OF_MEMORY : SUCCESS);
}
result cudaFreeHost(void *pointer) { return free(pointer), SUCCESS; }
result cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const uint64_t live = *fake_memory(LIVE_BYTES), limit = *fake_memory(LIMIT_BYTES);
    *total_bytes = *fake_memory(TOTAL_BYTES);
    *free_bytes = live < limit ? limit - live : 0;
    return SUCCESS;
}

/* Streams are numbers; what is put on one is done at once. */
static result stream_at(void *stream)
{
    const uint64_t number = (uint64_t)(uintptr_t)stream;
    return returns(number < MAX_STREAMS && fake_streams()[number] ? SUCCESS : INVALID_HANDLE);
}
result cuStreamCreate(void **stream, unsigned flags);
result cudaStreamCreateWithFlags(void **stream, unsigned flags) { return returns(cuStreamCreate(stream, flags)); }
result cudaStreamCreate(void **stream) { return cudaStreamCreateWithFlags(stream, 0); }
result cudaStreamDestroy(void *stream)
{
    if (stream_at(stream) != SUCCESS || (uintptr_t)stream <= 2)
        return returns(INVALID_HANDLE);
    fake_streams()[(uintptr_t)stream] = 0;
    return SUCCESS;
}
result cudaStreamSynchronize(void *stream) { return stream_at(stream); }
result cudaStreamQuery(void *stream) { return stream_at(stream); }
result cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)event, (void)flags;
    return stream_at(stream);
}
result cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    (void)kind;
    if (stream_at(stream) == SUCCESS)
        memmove(to, from, bytes);
    return stream_at(stream);
}
result cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}
result cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream)
{
    return to_device || from_device ? returns(INVALID_DEVICE) : cudaMemcpyAsync(to, from, bytes, 3, stream);
}
result cudaMemsetAsync(void *to, int value, size_t bytes, void *stream)
{
    if (stream_at(stream) == SUCCESS)
        memset(to, value, bytes);
    return stream_at(stream);
}
result cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }

/* Events are the driver's. */
result cuEventCreate(void **event, unsigned flags);
result cuEventDestroy(void *event);
result cuEventRecord(void *event, void *stream);
result cuEventElapsedTime(float *milliseconds, void *from, void *to);

result cudaEventCreateWithFlags(void **event, unsigned flags) { return returns(cuEventCreate(event, flags)); }
result cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }
result cudaEventDestroy(void *event) { return returns(cuEventDestroy(event)); }
result cudaEventRecord(void *event, void *stream) { return returns(cuEventRecord(event, stream)); }
result cudaEventSynchronize(void *event) { return (void)event, SUCCESS; }
result cudaEventQuery(void *event) { return (void)event, SUCCESS; }
result cudaEventElapsedTime(float *milliseconds, void *from, void *to)
{
    return returns(cuEventElapsedTime(milliseconds, from, to));
}

/* There are no graphs. */
result cudaStreamBeginCapture(void) { return returns(NOT_SUPPORTED); }
result cudaStreamEndCapture(void) { return returns(NOT_SUPPORTED); }
result cudaGraphInstantiate(void) { return returns(NOT_SUPPORTED); }
result cudaGraphLaunch(void) { return returns(NOT_SUPPORTED); }
result cudaGraphDestroy(void) { return SUCCESS; }
result cudaGraphExecDestroy(void) { return SUCCESS; }

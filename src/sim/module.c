/* Modules: real AMD code objects, whose kernels run as their host-compiled equivalents.
 *
 * The image is checked as a driver would: magic, machine, and that it was built for the device's architecture. Its
 * kernels are the symbols NAME.kd; each is looked up by name in the kernel libraries: librfsim-kernels.so and
 * librfsim-test-kernels.so beside this library, or those of kernels= instead. An image that lacks a kernel therefore
 * fails here as it would on a GPU, even though the host has that kernel. The image comes without its size, as in HIP:
 * its own headers are believed, within reason. */
#include "sim/sim.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LIBRARIES 16
#define MACHINE_AMDGPU 224
#define LARGEST_IMAGE (UINT64_C(1) << 30)

struct sim_function {
    uint32_t magic;
    struct sim_module *module;
    char *name;
    const struct rfk_kernel *kernel; /* NULL: in no kernel library */
    const struct rfk_table *table;
    int dynamic_shared; /* as the program set it */
};

struct sim_module {
    uint32_t magic;
    struct sim_device *device;
    struct sim_function *functions;
    size_t count;
    struct sim_module
        *next; /* all modules that were ever loaded; unloaded ones stay, so that stale handles are recognised */
};

static struct sim_module *modules;

/* ---- kernel libraries ---- */

static struct {
    rfk_table_fn table;
    const struct rfk_table *bound[2]; /* wave 32, 64 */
} libraries[MAX_LIBRARIES];
static int library_count;
static bool libraries_open;

static bool open_library(const char *path, bool needed) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *error = dlerror();
        snprintf(sim.message, sizeof sim.message, "kernel library %s: %s", path, error ? error : "cannot be opened");
        return !needed;
    }
    void *symbol = dlsym(handle, "rfk_table");
    if (!symbol || library_count == MAX_LIBRARIES) {
        snprintf(sim.message, sizeof sim.message, "kernel library %s: %s", path,
                 symbol ? "too many libraries" : "does not export rfk_table");
        return false;
    }
    memcpy(&libraries[library_count].table, &symbol, sizeof symbol);
    for (int i = 0; i < 2; i++) {
        const struct rfk_table *table = libraries[library_count].table(i ? 64 : 32);
        if (!table) continue;
        if (table->abi != RFK_ABI || table->wave != (i ? 64 : 32)) {
            snprintf(sim.message, sizeof sim.message, "kernel library %s: has interface %d, wave %d; expected %d, %d",
                     path, table->abi, table->wave, RFK_ABI, i ? 64 : 32);
            return false;
        }
        table->bind(&sim_services);
        libraries[library_count].bound[i] = table;
    }
    library_count++;
    return true;
}

/* With the lock held, once. */
static bool open_libraries(void) {
    if (libraries_open) return true;
    if (sim.config.kernels[0]) {
        char list[sizeof sim.config.kernels], *rest = list, *path;
        memcpy(list, sim.config.kernels, sizeof list);
        while ((path = strsep(&rest, ":")))
            if (*path && !open_library(path, true)) return false;
    } else {
        static const char *const names[] = {"librfsim-kernels.so", "librfsim-test-kernels.so"};
        Dl_info info;
        char path[1024];
        const char *slash = NULL;
        if (dladdr((const void *)&sim_services, &info) && info.dli_fname) slash = strrchr(info.dli_fname, '/');
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - info.dli_fname + 1) : 0,
                     slash ? info.dli_fname : "", names[i]);
            if (!open_library(path, false)) return false;
        }
    }
    libraries_open = true;
    return true;
}

static void find_kernel(struct sim_function *function, int wave) {
    for (int i = 0; i < library_count; i++) {
        const struct rfk_table *table = libraries[i].bound[wave == 64];
        for (uint32_t k = 0; table && k < table->count; k++)
            if (strcmp(table->kernels[k].name, function->name) == 0) {
                function->kernel = &table->kernels[k];
                function->table = table;
                return;
            }
    }
}

/* ---- code objects ---- */

/* EF_AMDGPU_MACH, from LLVM's description of the target. */
static const struct {
    unsigned char mach;
    const char *arch;
} machs[] = {
    {0x2c, "gfx900"},  {0x2d, "gfx902"},  {0x2e, "gfx904"},  {0x2f, "gfx906"},  {0x30, "gfx908"},  {0x31, "gfx909"},
    {0x32, "gfx90c"},  {0x33, "gfx1010"}, {0x34, "gfx1011"}, {0x35, "gfx1012"}, {0x36, "gfx1030"}, {0x37, "gfx1031"},
    {0x38, "gfx1032"}, {0x39, "gfx1033"}, {0x3d, "gfx1035"}, {0x3e, "gfx1034"}, {0x3f, "gfx90a"},  {0x40, "gfx940"},
    {0x41, "gfx1100"}, {0x42, "gfx1013"}, {0x43, "gfx1150"}, {0x44, "gfx1103"}, {0x45, "gfx1036"}, {0x46, "gfx1101"},
    {0x47, "gfx1102"}, {0x48, "gfx1200"}, {0x4a, "gfx1151"}, {0x4c, "gfx942"},  {0x4e, "gfx1201"}, {0x4f, "gfx950"},
    {0x55, "gfx1152"}, {0x58, "gfx1153"},
};

static int check_header(const Elf64_Ehdr *header, const char *arch) {
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_machine != MACHINE_AMDGPU ||
        header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff > LARGEST_IMAGE) {
        sim_message("the image is not an AMD code object (64-bit little-endian ELF, machine 224)");
        return SIM_INVALID_IMAGE;
    }
    const char *built_for = "an unknown architecture";
    for (size_t i = 0; i < sizeof machs / sizeof *machs; i++)
        if (machs[i].mach == (header->e_flags & 0xff)) built_for = machs[i].arch;
    if (strcmp(built_for, arch)) {
        sim_message("the image is for %s, the device is %s", built_for, arch);
        return SIM_NO_BINARY;
    }
    return SIM_OK;
}

static bool add_function(struct sim_module *module, const char *symbol, size_t length) {
    for (size_t i = 0; i < module->count; i++)
        if (strlen(module->functions[i].name) == length && memcmp(module->functions[i].name, symbol, length) == 0)
            return true; /* in both symbol tables */
    struct sim_function *grown = realloc(module->functions, (module->count + 1) * sizeof *grown);
    if (!grown) return false;
    module->functions = grown;
    struct sim_function *function = &grown[module->count];
    *function = (struct sim_function){.magic = SIM_FUNCTION_MAGIC,
                                      .module = module,
                                      .name = strndup(symbol, length),
                                      .dynamic_shared = (int)sim_shared_bytes(module->device->config->arch)};
    if (!function->name) return false;
    module->count++;
    return true;
}

static int read_kernels(const char *image, struct sim_module *module) {
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        const Elf64_Shdr *section = &sections[s];
        if (section->sh_type != SHT_SYMTAB && section->sh_type != SHT_DYNSYM) continue;
        if (section->sh_link >= header->e_shnum || section->sh_offset > LARGEST_IMAGE ||
            section->sh_size > LARGEST_IMAGE || section->sh_entsize != sizeof(Elf64_Sym))
            return SIM_INVALID_IMAGE;
        const Elf64_Shdr *strings = &sections[section->sh_link];
        if (strings->sh_offset > LARGEST_IMAGE || strings->sh_size > LARGEST_IMAGE) return SIM_INVALID_IMAGE;
        for (uint64_t i = 0; i < section->sh_size / sizeof(Elf64_Sym); i++) {
            Elf64_Sym symbol;
            memcpy(&symbol, image + section->sh_offset + i * sizeof symbol, sizeof symbol);
            if (symbol.st_name >= strings->sh_size) return SIM_INVALID_IMAGE;
            const char *name = image + strings->sh_offset + symbol.st_name;
            size_t length = strnlen(name, strings->sh_size - symbol.st_name);
            if (length > 3 && memcmp(name + length - 3, ".kd", 3) == 0 && !add_function(module, name, length - 3))
                return SIM_OUT_OF_MEMORY;
        }
    }
    return SIM_OK;
}

/* ---- PTX ---- */

/* A driver finds out by compiling that it has no code for a device; here the text says it. PTX runs on its own
 * architecture and newer ones, with an 'a' behind its number on its own only. */
static int check_ptx(const char *text, const char *arch) {
    const char *target = strstr(text, "\n.target sm_");
    char *end = NULL;
    long number = target ? strtol(target + sizeof "\n.target sm_" - 1, &end, 10) : 0,
         own = strtol(arch + 3, NULL, 10);
    if (!target || number < 10) {
        sim_message("the image is no PTX with a .target");
        return SIM_INVALID_IMAGE;
    }
    if (*end == 'a' ? number == own : number <= own) return SIM_OK;
    sim_message("the image is for sm_%ld%s, the device is %s", number, *end == 'a' ? "a" : "", arch);
    return SIM_NO_BINARY;
}

static int read_ptx(const char *text, struct sim_module *module) {
    static const char entry[] = ".entry ";
    for (const char *at = strstr(text, entry); at; at = strstr(at, entry)) {
        at += sizeof entry - 1;
        size_t length = strcspn(at, "( \n");
        if (length && !add_function(module, at, length)) return SIM_OUT_OF_MEMORY;
    }
    return SIM_OK;
}

static void free_functions(struct sim_module *module) {
    for (size_t i = 0; i < module->count; i++) {
        free(module->functions[i].name);
        module->functions[i].name = NULL;
        module->functions[i].magic = SIM_DEAD_MAGIC;
    }
}

/* ---- entry points ---- */

hipError_t hipModuleLoadData(hipModule_t *handle, const void *image) {
    int code = sim_enter(SIM_ENTRY_hipModuleLoadData);
    if (!code) code = sim_capture_forbids();
    if (code) return code;
    if (!handle || !image) return SIM_INVALID_VALUE;
    struct sim_device *device = sim_current();
    bool ptx = sim_arch_is_nvidia(device->config->arch);
    code = sim_drain(device);
    if (!code) code = ptx ? check_ptx(image, device->config->arch) : check_header(image, device->config->arch);
    if (code) return code;
    struct sim_module *module = calloc(1, sizeof *module);
    if (!module) return SIM_OUT_OF_MEMORY;
    module->magic = SIM_MODULE_MAGIC;
    module->device = device;
    code = ptx ? read_ptx(image, module) : read_kernels(image, module);
    sim_lock(&sim.lock);
    if (!code && !open_libraries()) code = SIM_LIBRARY_FAILED;
    if (!code) {
        for (size_t i = 0; i < module->count; i++) find_kernel(&module->functions[i], device->config->wave);
        module->next = modules;
        modules = module;
        sim.stats.modules++;
    }
    sim_unlock(&sim.lock);
    if (code) {
        free_functions(module);
        free(module->functions);
        free(module);
        return code;
    }
    *handle = (hipModule_t)module;
    return SIM_OK;
}

hipError_t hipModuleUnload(hipModule_t handle) {
    int code = sim_enter(SIM_ENTRY_hipModuleUnload);
    if (!code) code = sim_capture_forbids();
    if (code) return code;
    struct sim_module *module = (struct sim_module *)handle;
    if (!module || module->magic != SIM_MODULE_MAGIC) return SIM_INVALID_HANDLE;
    code = sim_drain(module->device);
    if (code) return code;
    sim_lock(&sim.lock);
    module->magic = SIM_DEAD_MAGIC;
    free_functions(module);
    sim.stats.modules--;
    sim_unlock(&sim.lock);
    return SIM_OK;
}

hipError_t hipModuleGetFunction(hipFunction_t *handle, hipModule_t module_handle, const char *name) {
    int code = sim_enter(SIM_ENTRY_hipModuleGetFunction);
    if (code) return code;
    struct sim_module *module = (struct sim_module *)module_handle;
    if (!handle || !name) return SIM_INVALID_VALUE;
    if (!module || module->magic != SIM_MODULE_MAGIC) return SIM_INVALID_HANDLE;
    for (size_t i = 0; i < module->count; i++) {
        struct sim_function *function = &module->functions[i];
        if (strcmp(function->name, name)) continue;
        if (!function->kernel) {
            sim_message("kernel %s is in the code object but in no kernel library for wave %d", name,
                        module->device->config->wave);
            return SIM_NOT_FOUND;
        }
        *handle = (hipFunction_t)function;
        return SIM_OK;
    }
    sim_message("the code object has no kernel %s", name);
    return SIM_NOT_FOUND;
}

static struct sim_function *function_of(hipFunction_t handle) {
    struct sim_function *function = (struct sim_function *)handle;
    return function && function->magic == SIM_FUNCTION_MAGIC ? function : NULL;
}

hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute attribute, hipFunction_t handle) {
    int code = sim_enter(SIM_ENTRY_hipFuncGetAttribute);
    if (code) return code;
    struct sim_function *function = function_of(handle);
    if (!value) return SIM_INVALID_VALUE;
    if (!function) return SIM_INVALID_HANDLE;
    switch ((int)attribute) {
    case SIM_FUNC_MAX_THREADS: *value = (int)function->kernel->max_threads; return SIM_OK;
    case SIM_FUNC_SHARED_BYTES:
    case SIM_FUNC_CONST_BYTES:
    case SIM_FUNC_LOCAL_BYTES: *value = 0; return SIM_OK;
    case SIM_FUNC_REGISTERS: *value = 32; return SIM_OK;
    case SIM_FUNC_DYNAMIC_SHARED: *value = function->dynamic_shared; return SIM_OK;
    default: return SIM_INVALID_VALUE;
    }
}

/* In HIP the parameter is the host symbol of a kernel, in CUDA a function handle; here it is the handle. As on AMD,
 * all shared memory is available without asking: what is set is checked and kept, and changes nothing. */
hipError_t hipFuncSetAttribute(const void *handle, hipFuncAttribute attribute, int value) {
    int code = sim_enter(SIM_ENTRY_hipFuncSetAttribute);
    if (code) return code;
    struct sim_function *function = function_of((hipFunction_t)(uintptr_t)handle);
    if (!function) return SIM_INVALID_HANDLE;
    if ((int)attribute == SIM_FUNC_SET_CARVEOUT) return value >= -1 && value <= 100 ? SIM_OK : SIM_INVALID_VALUE;
    if ((int)attribute != SIM_FUNC_SET_DYNAMIC_SHARED || value < 0 ||
        (uint32_t)value > sim_shared_bytes(function->module->device->config->arch))
        return SIM_INVALID_VALUE;
    sim_lock(&sim.lock);
    function->dynamic_shared = value;
    sim_unlock(&sim.lock);
    return SIM_OK;
}

/* Refuses what cuda.h says that cuTensorMapEncodeTiled refuses. */
hipError_t rfsim_map_encode(void *to, int type, uint32_t rank, void *base, const uint64_t *sizes,
                            const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                            int swizzle, int promotion, int outside) {
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2,
                                    4, 8, 2, 4, 4, 4}; /* of an element, by CUtensorMapDataType */
    int code = sim_enter(SIM_ENTRY_rfsim_map_encode);
    if (code) return code;
    if (!to || (uintptr_t)to % 64 || type < 0 || (size_t)type >= sizeof bytes || !rank || rank > RFK_MAP_RANK ||
        (uintptr_t)base % 16 || interleave || swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || outside)
        return SIM_INVALID_VALUE;
    struct rfk_map map = {.magic = RFK_MAP_MAGIC,
                          .rank = (uint16_t)rank,
                          .element_bytes = bytes[type],
                          .swizzle_bytes = swizzle ? 16u << swizzle : 0,
                          .base = (uintptr_t)base};
    for (uint32_t i = 0; i < rank; i++) {
        bool good = sizes[i] && sizes[i] <= UINT64_C(1) << 32 && box[i] && box[i] <= 256 && steps[i] == 1;
        if (i) good = good && strides[i - 1] % 16 == 0 && strides[i - 1] < UINT64_C(1) << 40;
        if (!good) return SIM_INVALID_VALUE;
        map.sizes[i] = sizes[i];
        map.box[i] = box[i];
        if (i) map.strides[i - 1] = strides[i - 1];
    }
    uint32_t inner = box[0] * map.element_bytes;
    if (inner % 16 || (swizzle && inner > map.swizzle_bytes)) return SIM_INVALID_VALUE;
    memcpy(to, &map, sizeof map);
    return SIM_OK;
}

hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned int gx, unsigned int gy, unsigned int gz,
                                 unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared_bytes,
                                 hipStream_t stream_handle, void **args, void **extra) {
    int code = sim_enter(SIM_ENTRY_hipModuleLaunchKernel);
    if (code) return code;
    struct sim_function *function = function_of(handle);
    struct sim_stream *stream = sim_stream_of(stream_handle);
    if (!function || !stream || function->module->device != stream->device) return SIM_INVALID_HANDLE;
    const struct rfk_kernel *kernel = function->kernel;
    uint64_t threads = (uint64_t)bx * by * bz;
    if (!gx || !gy || !gz || !threads || bx > SIM_MAX_THREADS || by > SIM_MAX_THREADS || bz > SIM_MAX_THREADS ||
        threads > SIM_MAX_THREADS || gy > 65535 || gz > 65535 || gx > INT32_MAX ||
        shared_bytes > sim_shared_bytes(stream->device->config->arch))
        return SIM_INVALID_VALUE;
    if ((uint64_t)gx * bx > UINT32_MAX) return SIM_INVALID_CONFIGURATION; /* y and z cannot be that large here */
    if (threads > kernel->max_threads) {
        sim_message("kernel %s takes at most %u threads per block, not %llu", kernel->name, kernel->max_threads,
                    (unsigned long long)threads);
        return SIM_INVALID_VALUE;
    }
    if (extra) {
        sim_message("only the array of argument pointers is simulated, not the packed 'extra' form");
        return SIM_NOT_SUPPORTED;
    }
    if (kernel->arg_count && !args) return SIM_INVALID_VALUE;
    /* Arguments are read now and stored with the work, each aligned to 64 bytes, as a tensor map must be. */
    enum { ALIGN = 64 };
    size_t bytes = (kernel->arg_count + 1) * sizeof(void *);
    for (uint32_t i = 0; i < kernel->arg_count; i++)
        bytes += (kernel->arg_bytes[i] + 2u * ALIGN) & ~(size_t)(ALIGN - 1);
    struct sim_work *work = sim_work_create(SIM_WORK_LAUNCH, bytes);
    if (!work) return SIM_OUT_OF_MEMORY;
    work->launch.kernel = kernel;
    work->launch.table = function->table;
    work->launch.grid = (struct rfk_dim){gx, gy, gz};
    work->launch.block = (struct rfk_dim){bx, by, bz};
    work->launch.shared_bytes = shared_bytes;
    work->launch.args = (void **)(work + 1);
    uintptr_t next = (uintptr_t)(work->launch.args + kernel->arg_count + 1);
    for (uint32_t i = 0; i < kernel->arg_count; i++) {
        next = (next + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
        work->launch.args[i] = (void *)next;
        memcpy(work->launch.args[i], args[i], kernel->arg_bytes[i]);
        next += kernel->arg_bytes[i];
    }
    return sim_submit(stream, work, false);
}

/* rocmforge-probe: asks one driver which devices exist, and may crash while it does so.
 *
 * Called by rf_probe_run with options as NAME=VALUE arguments and a pipe as descriptor 3; without a pipe it writes to
 * standard output, for people who want to look. It announces each step before taking it, so that the caller knows
 * which step killed it. It creates no GPU context, leaves no core file, ends with its parent, and does not run the
 * driver's exit handlers, because some of them hang. With a pipe, a keeper (base/keeper.h) stands between the caller
 * and the process that asks: it ends as that process does, and leaves nothing that the driver started. */
#include "gpu/probe_report.h"

#include "base/descriptors.h"
#include "base/keeper.h"
#include "gpu/budget.h"
#include "gpu/device_nodes.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static void say_step(int fd, const char *format, ...) RF_PRINTF(2, 3);
static bool write_all(int fd, const char *text, size_t length);
static bool is_shared(const struct rf_driver *driver) {
    int (*shared)(void) = NULL;
    *(void **)&shared = dlsym(driver->library, "rfsim_shared");
    return shared && shared();
}

static void ask_driver(int fd, const struct rf_options *options, struct rf_probe_report *report);
static void be_expendable(const struct rf_options *options);
static void forget_environment(void);

enum { REPORT_FD = 3 };

int main(int argc, char **argv) {
    struct rf_options *options = NULL;
    bool has_pipe = fcntl(REPORT_FD, F_GETFD) >= 0;
    (void)argc;
    if (!rf_reserve_standard_fds()) return 1; /* a driver must not get one of them for a file of its own */
    if (has_pipe) rf_keeper_split(0);         /* where no process can be had, this one asks by itself */
    forget_environment();
    if (rf_options_create((const char *const *)(argv + 1), &options) != RF_OK) {
        fprintf(stderr, "rocmforge-probe: %s\n", rf_error_text());
        return 2;
    }
    be_expendable(options);
    _exit(rf_probe_helper(has_pipe ? REPORT_FD : STDOUT_FILENO, options));
}

int rf_probe_helper(int fd, const struct rf_options *options) {
    struct rf_probe_report *report = calloc(1, sizeof *report);
    char *text = malloc(RF_PROBE_REPORT_MAX_BYTES);
    if (!report || !text || !write_all(fd, RF_PROBE_HEADER, strlen(RF_PROBE_HEADER))) {
        free(report);
        free(text);
        return 1;
    }
    ask_driver(fd, options, report);
    size_t length = rf_probe_report_write(report, text, RF_PROBE_REPORT_MAX_BYTES);
    bool written = length > 0 && write_all(fd, text, length);
    free(report);
    free(text);
    return written ? 0 : 1;
}

/* ---- asking ---- */

static void ask_device(const struct rf_driver *driver, const char *sysfs, const char *nvml,
                       struct rf_probe_device *device);
static rf_status count_devices(const struct rf_driver *driver, int *count);

static void keep_reason(struct rf_probe_report *report, rf_status status) {
    report->status = status;
    report->count = 0;
    snprintf(report->reason, sizeof report->reason, "%s", rf_error_text());
    for (char *c = report->reason; *c; c++)
        if ((unsigned char)*c < 0x20) *c = ' ';
    if (!report->reason[0]) snprintf(report->reason, sizeof report->reason, "%s", rf_status_name(status));
}

/* HIP does not say why it finds no device. Where the kernel's device nodes may not be opened, that is why. */
static void add_device_nodes(struct rf_probe_report *report, const char *dev) {
    char why[400];
    size_t length = strlen(report->reason);
    if (rf_device_nodes_usable(dev && dev[0] ? dev : "/dev", why, sizeof why)) return;
    snprintf(report->reason + length, sizeof report->reason - length, "; %s", why);
}

static void ask_driver(int fd, const struct rf_options *options, struct rf_probe_report *report) {
    struct rf_driver driver;
    const char *wanted = rf_options_get(options, "RF_DRIVER"), *sysfs = rf_options_get(options, "RF_SYSFS");
    const char *nvml = rf_options_get(options, "RF_NVML_LIBRARY");
    report->kind = wanted && strcmp(wanted, "cuda") == 0 ? RF_DRIVER_CUDA : RF_DRIVER_HIP;
    const char *path = rf_options_get(options, report->kind == RF_DRIVER_CUDA ? "RF_CUDA_LIBRARY" : "RF_HIP_LIBRARY");

    say_step(fd, "loading %s", path && path[0] ? path : "the driver");
    rf_status status = rf_driver_load(report->kind, path, &driver);
    if (status != RF_OK) {
        keep_reason(report, status);
        return;
    }
    report->simulated = driver.simulated ? RF_PROBE_SIMULATED : RF_PROBE_NOT_SIMULATED;
    snprintf(report->library, sizeof report->library, "%s", driver.path);
    say_step(fd, "initialising %s", driver.path);
    status = rf_driver_init(&driver);
    snprintf(report->label, sizeof report->label, "%s", driver.label);
    if (status == RF_OK) {
        say_step(fd, "counting the devices of %s", driver.path);
        status = count_devices(&driver, &report->count);
    }
    if (status != RF_OK) {
        keep_reason(report, status);
        if (report->kind == RF_DRIVER_HIP && !driver.simulated && status != RF_E_NO_DRIVER)
            add_device_nodes(report, rf_options_get(options, "RF_DEV"));
        return;
    }
    if (driver.simulated && is_shared(&driver)) report->simulated = RF_PROBE_SIMULATED_SHARED;
    /* A simulated GPU is not in the real kernel's figures. */
    if (driver.simulated && sysfs && strcmp(sysfs, "/sys") == 0) sysfs = NULL;
    for (int i = 0; i < report->count; i++) {
        say_step(fd, "asking about device %d of %s", i, driver.path);
        report->devices[i].ordinal = i;
        ask_device(&driver, sysfs, nvml && nvml[0] ? nvml : NULL, &report->devices[i]);
    }
}

static rf_status count_devices(const struct rf_driver *driver, int *count) {
    int answer = 0, code = driver->device_count(&answer);
    const char *vendor = driver->kind == RF_DRIVER_CUDA ? "CUDA" : "HIP";
    if (code == RF_DRV_NO_DEVICE || (code == RF_DRV_OK && answer == 0))
        return rf_fail(RF_E_NO_DEVICE, "%s driver: %s finds no device", vendor, driver->path);
    if (code != RF_DRV_OK)
        return rf_fail(RF_E_DRIVER, "%s driver: %s cannot count its devices: %s (%d)", vendor, driver->path,
                       rf_driver_error_name(driver, code), code);
    if (answer < 0 || answer > RF_MAX_DEVICES)
        return rf_fail(RF_E_DRIVER, "%s driver: %s says there are %d devices, which makes no sense", vendor,
                       driver->path, answer);
    *count = answer;
    return RF_OK;
}

static void fault(struct rf_probe_device *device, const char *format, ...) RF_PRINTF(2, 3);
static void fault(struct rf_probe_device *device, const char *format, ...) {
    if (device->fault[0]) return; /* the first fault tells most */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(device->fault, sizeof device->fault, format, arguments);
    va_end(arguments);
}

/* Calls that fill text get a buffer with more room than they are told, so that a call that does not terminate the
 * text or writes too much is noticed. */
enum { TEXT_BYTES = 128, ROOM_BYTES = 512, FILLER = 0x5a };

static bool overran(const char *buffer, size_t told) {
    for (size_t i = told; i < ROOM_BYTES; i++)
        if (buffer[i] != FILLER) return true;
    return false;
}

static void ask_name(const struct rf_driver *driver, int handle, struct rf_probe_device *device) {
    char buffer[ROOM_BYTES];
    memset(buffer, FILLER, sizeof buffer);
    memset(buffer, 0, TEXT_BYTES);
    int code = driver->device_name(buffer, TEXT_BYTES, handle);
    if (code != RF_DRV_OK)
        fault(device, "the driver does not tell its name: %s (%d)", rf_driver_error_name(driver, code), code);
    else if (overran(buffer, TEXT_BYTES) || strnlen(buffer, TEXT_BYTES) == TEXT_BYTES)
        fault(device, "the driver gives it a name without an end");
    else
        memcpy(device->name, buffer, RF_MIN(sizeof device->name, (size_t)TEXT_BYTES));
    device->name[sizeof device->name - 1] = 0;
}

/* The address is written in lower case and with four digits of domain, as the kernel names it; it is empty where
 * unknown. */
static void ask_pci(const struct rf_driver *driver, int handle, struct rf_probe_device *device) {
    char buffer[ROOM_BYTES];
    unsigned domain, bus, slot, function;
    memset(buffer, FILLER, sizeof buffer);
    memset(buffer, 0, TEXT_BYTES);
    if (!driver->device_pci || driver->device_pci(buffer, TEXT_BYTES, handle) != RF_DRV_OK) return;
    if (overran(buffer, TEXT_BYTES) || strnlen(buffer, TEXT_BYTES) == TEXT_BYTES)
        fault(device, "the driver gives it a PCI address without an end");
    else if (sscanf(buffer, "%8x:%2x:%2x.%1x", &domain, &bus, &slot, &function) == 4)
        snprintf(device->pci, sizeof device->pci, "%04x:%02x:%02x.%x", domain, bus, slot, function);
}

/* The vendors' types for the 16 bytes have other names, so clang's check of indirect calls takes the functions for
 * functions of another type. */
#if defined(__clang__)
#define CALLS_BY_ANOTHER_TYPE __attribute__((no_sanitize("function")))
#else
#define CALLS_BY_ANOTHER_TYPE
#endif

/* NVIDIA's 16 bytes are written as NVIDIA's own tools write them. AMD fills them with the 16 hexadecimal digits of
 * the GPU's serial number as text, or with no more than "XX" where it has none. */
CALLS_BY_ANOTHER_TYPE static void ask_uuid(const struct rf_driver *driver, int handle,
                                           struct rf_probe_device *device) {
    unsigned char buffer[ROOM_BYTES];
    bool zero = true, digits = true, known = false;
    memset(buffer, FILLER, sizeof buffer);
    memset(buffer, 0, 16);
    if (driver->device_uuid && driver->device_uuid(buffer, handle) == RF_DRV_OK) {
        if (overran((const char *)buffer, 16)) fault(device, "the driver gives it an identity that is too long");
        for (size_t i = 0; i < 16; i++) {
            zero = zero && buffer[i] == 0;
            digits = digits && buffer[i] != 0 && strchr("0123456789abcdefABCDEF", buffer[i]);
        }
        known = !zero && strncmp((const char *)buffer, "XX", 16) != 0;
    }
    if (known && digits) {
        snprintf(device->uuid, sizeof device->uuid, "GPU-%.16s", (const char *)buffer);
    } else if (known) {
        size_t length = (size_t)snprintf(device->uuid, sizeof device->uuid, "GPU-");
        for (size_t i = 0; i < 16; i++)
            length += (size_t)snprintf(device->uuid + length, sizeof device->uuid - length, "%s%02x",
                                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", buffer[i]);
    } else if (device->pci[0]) {
        snprintf(device->uuid, sizeof device->uuid, "pci-%s", device->pci);
    } else {
        snprintf(device->uuid, sizeof device->uuid, "%s-%d", driver->kind == RF_DRIVER_CUDA ? "cuda" : "hip",
                 device->ordinal);
    }
}

static void ask_number(const struct rf_driver *driver, int handle, enum rf_driver_attribute attribute,
                       const char *what, int *value, struct rf_probe_device *device) {
    int code = rf_driver_attribute(driver, value, attribute, handle);
    if (code != RF_DRV_OK)
        fault(device, "the driver does not tell its %s: %s (%d)", what, rf_driver_error_name(driver, code), code);
}

/* Asks the kernel for free memory and display, since the driver would need a context. Kernel and driver count
 * reserved memory differently, so a free figure a little above the driver's total is cut to that total; one above the
 * kernel's own total is passed on, to be judged by the reader. A discrete GPU has no more memory than the kernel
 * says, whatever its driver says. */
static void ask_kernel(enum rf_driver_kind kind, const char *sysfs, const char *nvml,
                       struct rf_probe_device *device) {
    struct rf_witness *witness = NULL;
    uint64_t free_bytes = 0, total_bytes = 0;
    if (rf_witness_create_with(kind, sysfs, nvml, device->pci, device->uuid, &witness) != RF_OK) return;
    if (rf_witness_memory(witness, device->integrated, &free_bytes, &total_bytes) == RF_OK) {
        if (device->integrated && total_bytes > device->total_bytes) device->total_bytes = total_bytes;
        if (!device->integrated && total_bytes && total_bytes < device->total_bytes)
            device->total_bytes = total_bytes;
        if (free_bytes <= total_bytes && free_bytes > device->total_bytes) free_bytes = device->total_bytes;
        device->free_bytes = free_bytes;
    }
    device->display = (int)rf_witness_display(witness);
    rf_witness_destroy(&witness);
}

static void ask_device(const struct rf_driver *driver, const char *sysfs, const char *nvml,
                       struct rf_probe_device *device) {
    int handle = 0, opt_in = 0, code = driver->device_get(&handle, device->ordinal);
    if (code != RF_DRV_OK) {
        fault(device, "the driver does not give it: %s (%d)", rf_driver_error_name(driver, code), code);
        return;
    }
    ask_name(driver, handle, device);
    ask_pci(driver, handle, device);
    ask_uuid(driver, handle, device);

    size_t total_bytes = 0;
    code = driver->device_total(&total_bytes, handle);
    if (code != RF_DRV_OK)
        fault(device, "the driver does not tell its memory: %s (%d)", rf_driver_error_name(driver, code), code);
    device->total_bytes = total_bytes;
    ask_number(driver, handle, RF_ATTR_WARP_SIZE, "wave size", &device->wave_size, device);
    code = rf_driver_compute_units(driver, handle, sysfs, &device->compute_units);
    if (code != RF_DRV_OK)
        fault(device, "the driver does not tell its compute units: %s (%d)", rf_driver_error_name(driver, code),
              code);
    ask_number(driver, handle, RF_ATTR_MAX_THREADS_PER_BLOCK, "block size", &device->max_threads_per_block, device);
    ask_number(driver, handle, RF_ATTR_MAX_SHARED_PER_BLOCK, "shared memory", &device->max_shared_bytes_per_block,
               device);
    if (rf_driver_attribute(driver, &opt_in, RF_ATTR_MAX_SHARED_PER_BLOCK_OPTIN, handle) == RF_DRV_OK)
        device->max_shared_bytes_per_block = RF_MAX(device->max_shared_bytes_per_block, opt_in);
    if (rf_driver_attribute(driver, &device->integrated, RF_ATTR_INTEGRATED, handle) == RF_DRV_OK)
        device->integrated = device->integrated != 0;

    code = rf_driver_arch(driver, handle, sysfs, device->arch, sizeof device->arch);
    if (code != RF_DRV_OK)
        fault(device, "the driver does not tell its architecture: %s (%d)", rf_driver_error_name(driver, code), code);
    if (!device->name[0])
        memcpy(device->name, device->arch, sizeof device->arch); /* some integrated GPUs have no name */
    /* cuMemAlloc rounds up to this size; amdgpu also accounts for VRAM in these steps. */
    device->granularity_bytes = (uint64_t)2 << 20;
    if (sysfs) ask_kernel(driver->kind, sysfs, nvml, device);
}

/* ---- the process ---- */

/* The arguments are all of the caller's options. Options in the environment were overridden by these, or would be
 * malformed here as well. */
static void forget_environment(void) {
    for (size_t i = 0; i < rf_option_count(); i++)
        if (strncmp(rf_option_at(i)->name, "RF_", 3) == 0) unsetenv(rf_option_at(i)->name);
}

static void be_expendable(const struct rf_options *options) {
    /* The limit 1 also keeps the kernel from piping the core to a crash reporter, which 0 does not. */
    struct rlimit no_core = {1, 1};
    if (setrlimit(RLIMIT_CORE, &no_core) != 0) {
        no_core = (struct rlimit){0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A preloaded library may have installed handlers; a crash must end the process with its signal. */
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGALRM};
    for (size_t i = 0; i < RF_COUNT(deadly); i++) signal(deadly[i], SIG_DFL);
    int64_t timeout_ms = rf_options_int(options, "RF_PROBE_TIMEOUT_MS");
    alarm((unsigned)(timeout_ms / 1000) + 5); /* a backstop: the caller kills by the deadline */
}

static void say_step(int fd, const char *format, ...) {
    char step[160], line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(step, sizeof step, format, arguments);
    va_end(arguments);
    write_all(fd, line, rf_probe_step_write(step, line, sizeof line));
}

static bool write_all(int fd, const char *text, size_t length) {
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text += written;
        length -= (size_t)written;
    }
    return true;
}

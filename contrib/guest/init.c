/* The only program of the small guests with which moves are tested: it does some work, and writes a heartbeat.
 *
 * Words of the kernel's command line:
 *   fill=MB          memory that is filled once
 *   dirty=MB,MBS     memory that is written again and again, at so many MB a second
 *   spin             a processor that is busy
 *   disk=RATE        blocks of 4 KB that are written to the first disk, so many a second, each with its number and the time
 *   fetch=IP,PORT    a TCP connection to there (Multipath TCP if the kernel has it) that is read for ever
 *   ip=ADDR,BITS     the address of the network card
 * Its console says READY once, "alive N" every second, and how long nothing came of the connection at most; with a
 * disk, "disk N" once, the highest number that was found on it, from which it goes on.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static char words[4096];
static volatile uint64_t received, longest_ms;

static const char *word(const char *name) {
    static __thread char value[256];
    size_t len = strlen(name);
    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
        if (!strncmp(at, name, len) && (at[len] == '=' || at[len] == ' ' || !at[len])) {
            const char *from = at + len + (at[len] == '=');
            snprintf(value, sizeof value, "%.*s", (int)strcspn(from, " "), from);
            return value;
        }
    return NULL;
}

static uint64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ull + time.tv_nsec / 1000000;
}

static void load_modules(void) {
    struct dirent **names;
    int count = scandir("/modules", &names, NULL, alphasort);
    for (int n = 0; n < count; n++) {
        char path[512];
        if (names[n]->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/modules/%s", names[n]->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (syscall(SYS_finit_module, file, "", 0) && errno != EEXIST) printf("module %s: %s\n", path, strerror(errno));
        close(file);
    }
}

/* Numbers without an end, so that no page is zero or equal to what it was. */
static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void fill(uint64_t *memory, size_t bytes, uint64_t seed) {
    uint64_t state = seed | 1;
    for (size_t n = 0; n < bytes / 8; n++) memory[n] = next(&state);
}

static void *dirty(void *unused) {
    unsigned mb = 0, rate = 0;
    sscanf(word("dirty"), "%u,%u", &mb, &rate);
    size_t pages = (size_t)mb << 8, page = 0;
    uint64_t state = 88172645463325252ull, *memory = malloc(pages << 12);
    fill(memory, pages << 12, 7);
    printf("WORKS\n");
    uint64_t began = now_ms(), done = 0;
    for (;;) {
        /* What is owed at this time; after a stop, not all of what was missed. */
        uint64_t owed = (now_ms() - began) * rate * 256 / 1000;
        if (owed > done + 256 * rate / 4) done = owed - 256 * rate / 4;
        for (; done < owed; done++) {
            memory[page * 512] = next(&state);
            page = (page + 1) % pages;
        }
        usleep(5000);
    }
    return unused;
}

/* A block of the disk: "ANABRANC", its number, the time in ms since 1970, then numbers that follow from it. */
static void *disk(void *unused) {
    static uint64_t block[512] __attribute__((aligned(4096)));
    unsigned rate = 1;
    sscanf(word("disk"), "%u", &rate);
    int file = -1;
    for (int n = 0; n < 100 && (file = open("/dev/vda", O_RDWR | O_DIRECT | O_DSYNC | O_CLOEXEC)) < 0; n++) usleep(50000);
    off_t blocks = lseek(file, 0, SEEK_END) / sizeof block;
    if (file < 0 || !blocks) return printf("no disk\n"), NULL;
    /* The places are far from each other, and are used again. */
    off_t places = blocks < 1024 ? blocks : 1024, stride = blocks / places;
    uint64_t number = 0, magic;
    memcpy(&magic, "ANABRANC", 8);
    for (off_t n = 0; n < places; n++)
        if (pread(file, block, sizeof block, n * stride * sizeof block) == sizeof block && block[0] == magic && block[1] > number) number = block[1];
    printf("disk %llu\n", (unsigned long long)number);
    for (;;) {
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        fill(block, sizeof block, ++number);
        block[0] = magic, block[1] = number, block[2] = time.tv_sec * 1000ull + time.tv_nsec / 1000000;
        if (pwrite(file, block, sizeof block, number * 389 % places * stride * sizeof block) != sizeof block) printf("WRITE FAILED: %s\n", strerror(errno));
        usleep(1000000 / rate);
    }
    return unused;
}

static void *spin(void *unused) {
    for (volatile uint64_t n = 0;; n++) ;
    return unused;
}

static void *fetch(void *unused) {
    char host[64];
    int port;
    sscanf(word("fetch"), "%63[^,],%d", host, &port);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    for (;;) {
        int one = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
        if (one < 0) one = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(one, (struct sockaddr *)&to, sizeof to)) {
            static char bytes[65536];
            uint64_t last = now_ms();
            write(one, "GET / HTTP/1.0\r\n\r\n", 18);
            for (ssize_t len; (len = read(one, bytes, sizeof bytes)) > 0;) {
                uint64_t now = now_ms();
                if (received && now - last > longest_ms) longest_ms = now - last;
                last = now;
                received += len;
            }
        }
        printf("CONNECTION ENDED\n");
        close(one);
        sleep(1);
    }
    return unused;
}

static void network(void) {
    char address[64];
    int bits = 24, control = socket(AF_INET, SOCK_DGRAM, 0);
    sscanf(word("ip"), "%63[^,],%d", address, &bits);
    struct ifreq request = {0};
    struct sockaddr_in *value = (struct sockaddr_in *)&request.ifr_addr;
    strcpy(request.ifr_name, "eth0");
    value->sin_family = AF_INET;
    inet_pton(AF_INET, address, &value->sin_addr);
    if (ioctl(control, SIOCSIFADDR, &request)) perror("address");
    value->sin_addr.s_addr = htonl(~0u << (32 - bits));
    ioctl(control, SIOCSIFNETMASK, &request);
    ioctl(control, SIOCGIFFLAGS, &request);
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    ioctl(control, SIOCSIFFLAGS, &request);
    close(control);
}

static int heartbeat(void) {
    DIR *ports = opendir("/sys/class/virtio-ports");
    for (struct dirent *port; ports && (port = readdir(ports));) {
        char path[512], name[64] = "";
        snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", port->d_name);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (fgets(name, sizeof name, file) && !strncmp(name, "org.anabranch.heartbeat", 23)) {
            snprintf(path, sizeof path, "/dev/%s", port->d_name);
            fclose(file);
            return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        }
        fclose(file);
    }
    return -1;
}

static void start(void *(*work)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
}

int main(void) {
    mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir("/dev", 0755);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    dup2(console, 1), dup2(console, 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int cmdline = open("/proc/cmdline", O_RDONLY);
    ssize_t len = read(cmdline, words, sizeof words - 1);
    if (len > 0 && words[len - 1] == '\n') words[len - 1] = 0;
    load_modules();
    if (word("ip")) network();
    if (word("fill")) {
        size_t bytes = (size_t)atoi(word("fill")) << 20;
        fill(malloc(bytes), bytes, 3);
    }
    if (word("dirty")) start(dirty);
    if (word("disk")) start(disk);
    if (word("spin")) start(spin);
    if (word("fetch")) start(fetch);
    int port = -1;
    for (int n = 0; n < 100 && (port = heartbeat()) < 0; n++) usleep(50000);
    if (port < 0) printf("no heartbeat port\n");
    printf("READY\n");
    for (uint64_t beat = 0;; beat++) {
        if (port >= 0) write(port, "x", 1);
        if (beat % 100 == 99) {
            printf("alive %llu", (unsigned long long)beat / 100);
            if (word("fetch")) printf(", received %llu, longest gap %llu ms", (unsigned long long)received, (unsigned long long)longest_ms);
            printf("\n");
        }
        usleep(10000);
    }
}

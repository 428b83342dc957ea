/* A user-space switch between network namespaces: a wide area on one machine.
 *
 *     switch NODES MTU
 *
 * It makes a namespace with a TUN device for every node, and one device in its own namespace, the
 * host. A packet passes the egress rate of its source, the rate, loss and delay of the pair, and
 * the ingress rate of its destination; each rate has a queue that drops what comes when it is full.
 * Rates count the payload of TCP, so that they compare with goodput. Node NODES is the host: its
 * pairs have no delay and no rate unless they are set.
 *
 * First line of output: {"network": K, "pid": P, "namespaces": [descriptors]}. Node N has the
 * address 10.231.K.(N+1); the host has 10.231.K.254. `nsenter --net=/proc/P/fd/D` enters one.
 *
 * Commands on the input, one a line, each answered by one line:
 *     pair SRC DST DELAY_US BYTES_PER_S QUEUE_US LOSS_PPM     0 bytes per second: no limit
 *     node N EGRESS_BYTES_PER_S INGRESS_BYTES_PER_S QUEUE_US
 *     count
 * At the end of its input it kills the processes in its namespaces and exits.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/route.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_NODES = 64, BATCH = 64, MOST_FLOWS = 8192, MOST_PACKETS = 65536 };
enum stage { AT_EGRESS, AT_PAIR, AT_INGRESS };

typedef struct {
    double bytes_per_s; /* 0: no limit */
    int64_t queue_ns;
    int64_t free_ns; /* when what is in the queue has left it */
} rate_t;

typedef struct {
    rate_t rate;
    int64_t delay_ns, last_due_ns;
    double loss;
    uint64_t payload, packets, dropped, lost;
} pair_t;

typedef struct {
    int tun, namespace;
    ino_t inode;
    rate_t egress, ingress;
    uint64_t dropped;
} node_t;

typedef struct {
    int64_t due_ns;
    uint64_t number;
    int src, dst, length, payload, flow;
    enum stage stage;
    unsigned char bytes[];
} packet_t;

/* Payload of one direction of a TCP connection. */
typedef struct {
    int src, dst;
    uint16_t from, to;
    uint64_t payload;
    int64_t under_way;
    int used;
} flow_t;

static node_t nodes[MOST_NODES + 1];
static pair_t pairs[MOST_NODES + 1][MOST_NODES + 1];
static flow_t flows[MOST_FLOWS];
/* Node, port -> payload under way to it from one node, and the most of it. */
static int64_t under_way[MOST_NODES + 1][65536], most_under_way[MOST_NODES + 1][65536];
static packet_t *heap[MOST_PACKETS], *spare[MOST_PACKETS];
static int nodes_count, mtu, heap_size, spare_size, network;
static uint64_t next_number = 1, random_state = 88172645463325252ULL, written, late;
static int64_t worst_late_ns;

static void fail(const char *what) {
    fprintf(stderr, "switch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static double drawn(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

/* ---------------------------------------------------------------- events, the first due on top */

static int is_before(const packet_t *a, const packet_t *b) {
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void push(packet_t *packet) {
    int at = heap_size++;
    packet->number = next_number++;
    while (at > 0 && is_before(packet, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = packet;
}

static packet_t *pop(void) {
    packet_t *top = heap[0], *last = heap[--heap_size];
    int at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child >= heap_size) break;
        if (child + 1 < heap_size && is_before(heap[child + 1], heap[child])) child++;
        if (!is_before(heap[child], last)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* ---------------------------------------------------------------- the way of a packet */

static flow_t *flow_of(const packet_t *packet, uint16_t from, uint16_t to) {
    uint32_t hash = (uint32_t)(packet->src * 31 + packet->dst) * 2654435761u;
    hash = (hash ^ from) * 2654435761u;
    hash = ((hash ^ to) * 2654435761u) % MOST_FLOWS;
    for (int tries = 0; tries < MOST_FLOWS; tries++) {
        flow_t *flow = &flows[(hash + tries) % MOST_FLOWS];
        if (!flow->used) {
            *flow = (flow_t){packet->src, packet->dst, from, to, 0, 0, 1};
            return flow;
        }
        if (flow->src == packet->src && flow->dst == packet->dst && flow->from == from &&
            flow->to == to)
            return flow;
    }
    return NULL;
}

/* Source, destination and payload; 0 for a packet that goes to no node. */
static int read_headers(packet_t *packet, int src) {
    unsigned char *bytes = packet->bytes;
    if (packet->length < 20 || bytes[0] >> 4 != 4) return 0;
    if (bytes[16] != 10 || bytes[17] != 231 || bytes[18] != network) return 0;
    int dst = bytes[19] == 254 ? nodes_count : bytes[19] - 1;
    if (dst < 0 || dst > nodes_count || dst == src) return 0;
    packet->src = src;
    packet->dst = dst;
    packet->payload = 0;
    packet->flow = -1;
    int start = 4 * (bytes[0] & 15);
    if (bytes[9] == IPPROTO_TCP && packet->length >= start + 20) {
        packet->payload = packet->length - start - 4 * (bytes[start + 12] >> 4);
        uint16_t from = (uint16_t)(bytes[start] << 8 | bytes[start + 1]);
        uint16_t to = (uint16_t)(bytes[start + 2] << 8 | bytes[start + 3]);
        flow_t *flow = packet->payload ? flow_of(packet, from, to) : NULL;
        if (flow) {
            packet->flow = (int)(flow - flows);
            flow->payload += packet->payload;
            int64_t now = under_way[dst][to] += packet->payload;
            if (now > most_under_way[dst][to]) most_under_way[dst][to] = now;
        }
    }
    return 1;
}

static void release(packet_t *packet) {
    if (packet->flow >= 0) under_way[packet->dst][flows[packet->flow].to] -= packet->payload;
    spare[spare_size++] = packet;
}

/*
 * When a packet leaves a queue that it enters at `at_ns`; -1 where that is full. What a queue holds
 * is drawn for each packet. With one limit, flows that send whenever a packet has left keep a queue
 * full, and a packet that is sent again after a pause is dropped each time.
 */
static int64_t leaves(rate_t *rate, int64_t at_ns, int payload) {
    if (rate->bytes_per_s <= 0) return at_ns;
    int64_t begins_ns = rate->free_ns > at_ns ? rate->free_ns : at_ns;
    /* A packet without payload waits in the queue and takes no time of the line. */
    if (payload && begins_ns - at_ns > (int64_t)((0.75 + drawn() / 2) * rate->queue_ns)) return -1;
    rate->free_ns = begins_ns + (int64_t)(payload / rate->bytes_per_s * 1e9);
    return rate->free_ns;
}

/* The next stage of a packet; 0 where it was dropped. */
static int advance(packet_t *packet, enum stage stage, int64_t at_ns) {
    pair_t *pair = &pairs[packet->src][packet->dst];
    packet->stage = stage;
    if (stage == AT_EGRESS) {
        packet->due_ns = leaves(&nodes[packet->src].egress, at_ns, packet->payload);
        if (packet->due_ns < 0) nodes[packet->src].dropped++;
    } else if (stage == AT_PAIR) {
        if (pair->loss > 0 && drawn() < pair->loss) {
            pair->lost++;
            return 0;
        }
        packet->due_ns = leaves(&pair->rate, at_ns, packet->payload);
        if (packet->due_ns < 0) pair->dropped++;
        else packet->due_ns += pair->delay_ns;
        /* A shorter delay does not let packets overtake. */
        if (packet->due_ns >= 0 && packet->due_ns < pair->last_due_ns)
            packet->due_ns = pair->last_due_ns;
        if (packet->due_ns >= 0) pair->last_due_ns = packet->due_ns;
    } else {
        packet->due_ns = leaves(&nodes[packet->dst].ingress, at_ns, packet->payload);
        if (packet->due_ns < 0) nodes[packet->dst].dropped++;
    }
    return packet->due_ns >= 0;
}

static void deliver(packet_t *packet, int64_t at_ns) {
    pair_t *pair = &pairs[packet->src][packet->dst];
    int64_t late_ns = at_ns - packet->due_ns;
    pair->payload += packet->payload;
    pair->packets++;
    written++;
    if (late_ns > 2000000) late++;
    if (late_ns > worst_late_ns) worst_late_ns = late_ns;
    if (write(nodes[packet->dst].tun, packet->bytes, packet->length) < 0) pair->dropped++;
}

static void take_from(int src) {
    for (int count = 0; count < BATCH; count++) {
        if (!spare_size) {
            /* Everything that may wait waits: the rest is lost at the device. */
            char none[1];
            if (read(nodes[src].tun, none, 1) < 0) return;
            nodes[src].dropped++;
            continue;
        }
        packet_t *packet = spare[--spare_size];
        packet->length = (int)read(nodes[src].tun, packet->bytes, mtu);
        packet->flow = -1;
        if (packet->length < 0) {
            spare[spare_size++] = packet;
            return;
        }
        if (read_headers(packet, src) && advance(packet, AT_EGRESS, now_ns())) push(packet);
        else release(packet);
    }
}

static void give(void) {
    int64_t at_ns = now_ns();
    while (heap_size && heap[0]->due_ns <= at_ns) {
        packet_t *packet = pop();
        /* Stages follow each other at the times that were due, however late this loop is. */
        if (packet->stage != AT_INGRESS && advance(packet, packet->stage + 1, packet->due_ns)) {
            push(packet);
            continue;
        }
        if (packet->stage == AT_INGRESS && packet->due_ns >= 0) deliver(packet, at_ns);
        release(packet);
    }
}

/* ---------------------------------------------------------------- namespaces and devices */

static void set_sysctl(const char *name, const char *value) {
    int file = open(name, O_WRONLY);
    if (file < 0 || write(file, value, strlen(value)) < 0) fail(name);
    close(file);
}

static void up(const char *name, const char *address) {
    struct ifreq wanted;
    int handle = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memset(&wanted, 0, sizeof wanted);
    strncpy(wanted.ifr_name, name, IFNAMSIZ - 1);
    if (address) {
        struct sockaddr_in *in = (struct sockaddr_in *)&wanted.ifr_addr;
        in->sin_family = AF_INET;
        inet_pton(AF_INET, address, &in->sin_addr);
        if (ioctl(handle, SIOCSIFADDR, &wanted) < 0) fail("address");
        inet_pton(AF_INET, "255.255.255.0", &in->sin_addr);
        if (ioctl(handle, SIOCSIFNETMASK, &wanted) < 0) fail("netmask");
        wanted.ifr_mtu = mtu;
        if (ioctl(handle, SIOCSIFMTU, &wanted) < 0) fail("mtu");
        wanted.ifr_qlen = 10000;
        if (ioctl(handle, SIOCSIFTXQLEN, &wanted) < 0) fail("txqueuelen");
    }
    if (ioctl(handle, SIOCGIFFLAGS, &wanted) < 0) fail("flags");
    wanted.ifr_flags |= IFF_UP;
    if (ioctl(handle, SIOCSIFFLAGS, &wanted) < 0) fail("up");
    close(handle);
}

/* A TUN device of the present namespace; -1 where another process has that name. */
static int tun(const char *name) {
    struct ifreq wanted;
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0) fail("/dev/net/tun");
    memset(&wanted, 0, sizeof wanted);
    strncpy(wanted.ifr_name, name, IFNAMSIZ - 1);
    wanted.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (ioctl(device, TUNSETIFF, &wanted) < 0) {
        int reason = errno;
        close(device);
        errno = reason;
        return -1;
    }
    return device;
}

static void make_host(void) {
    char name[32], address[32];
    for (network = 0; network < 256; network++) {
        snprintf(name, sizeof name, "skywan%d", network);
        nodes[nodes_count].tun = tun(name);
        if (nodes[nodes_count].tun >= 0) break;
        if (errno != EBUSY) fail(name);
    }
    if (network == 256) fail("256 networks");
    snprintf(address, sizeof address, "10.231.%d.254", network);
    up(name, address);
}

static void make_node(int number) {
    char address[32];
    struct stat about;
    if (unshare(CLONE_NEWNET) < 0) fail("a namespace");
    nodes[number].namespace = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (nodes[number].namespace < 0 || fstat(nodes[number].namespace, &about) < 0) fail("ns");
    nodes[number].inode = about.st_ino;
    nodes[number].tun = tun("wan0");
    if (nodes[number].tun < 0) fail("wan0");
    snprintf(address, sizeof address, "10.231.%d.%d", network, number + 1);
    up("lo", NULL);
    up("wan0", address);
    /* Else a connection begins with what an earlier one has learnt of the line. */
    set_sysctl("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
}

static int is_ours(const char *pid) {
    char name[280];
    struct stat about;
    snprintf(name, sizeof name, "/proc/%s/ns/net", pid);
    if (atoi(pid) == getpid() || stat(name, &about) < 0) return 0;
    for (int number = 0; number < nodes_count; number++)
        if (nodes[number].inode == about.st_ino) return 1;
    return 0;
}

static int kill_found(void) {
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    int killed = 0;
    while (processes && (entry = readdir(processes)))
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && is_ours(entry->d_name))
            killed += kill(atoi(entry->d_name), SIGKILL) == 0;
    if (processes) closedir(processes);
    return killed;
}

/* Looks again for what was just entering a namespace. */
static void kill_all(void) {
    for (int quiet = 0; quiet < 3;) {
        quiet = kill_found() ? 0 : quiet + 1;
        usleep(10000);
    }
}

/* ---------------------------------------------------------------- commands */

static void tell(void) {
    struct rusage used;
    const char *comma = "";
    getrusage(RUSAGE_SELF, &used);
    printf("{\"cpu_s\": %.3f, \"packets\": %llu, \"late\": %llu, \"worst_late_ms\": %.3f,",
           used.ru_utime.tv_sec + used.ru_stime.tv_sec +
               (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6,
           (unsigned long long)written, (unsigned long long)late, worst_late_ns / 1e6);
    worst_late_ns = 0;
    printf(" \"pairs\": [");
    for (int src = 0; src <= nodes_count; src++)
        for (int dst = 0; dst <= nodes_count; dst++) {
            pair_t *pair = &pairs[src][dst];
            if (!pair->packets && !pair->lost && !pair->dropped) continue;
            printf("%s[%d, %d, %llu, %llu, %llu]", comma, src, dst,
                   (unsigned long long)pair->payload, (unsigned long long)pair->dropped,
                   (unsigned long long)pair->lost);
            comma = ", ";
        }
    printf("], \"node_drops\": [");
    for (int node = 0; node <= nodes_count; node++)
        printf("%s%llu", node ? ", " : "", (unsigned long long)nodes[node].dropped);
    printf("], \"flows\": [");
    comma = "";
    for (int number = 0; number < MOST_FLOWS; number++) {
        flow_t *flow = &flows[number];
        if (!flow->used) continue;
        printf("%s[%d, %d, %d, %d, %llu, %lld]", comma, flow->src, flow->dst, flow->from, flow->to,
               (unsigned long long)flow->payload, (long long)most_under_way[flow->dst][flow->to]);
        comma = ", ";
    }
    printf("]}\n");
}

static void obey(const char *line) {
    int src, dst, node;
    double delay_us, bytes_per_s, ingress, queue_us, loss_ppm;
    if (sscanf(line, "pair %d %d %lf %lf %lf %lf", &src, &dst, &delay_us, &bytes_per_s, &queue_us,
               &loss_ppm) == 6 && src >= 0 && dst >= 0 && src <= nodes_count && dst <= nodes_count) {
        pair_t *pair = &pairs[src][dst];
        int64_t now = now_ns();
        /* What waits in the queue leaves at the new rate. */
        if (pair->rate.free_ns > now && bytes_per_s > 0)
            pair->rate.free_ns = now + (int64_t)((pair->rate.free_ns - now) *
                                                 (pair->rate.bytes_per_s / bytes_per_s));
        pair->rate.bytes_per_s = bytes_per_s;
        pair->rate.queue_ns = (int64_t)(queue_us * 1e3);
        pair->delay_ns = (int64_t)(delay_us * 1e3);
        pair->loss = loss_ppm / 1e6;
        puts("ok");
    } else if (sscanf(line, "node %d %lf %lf %lf", &node, &bytes_per_s, &ingress, &queue_us) == 4 &&
               node >= 0 && node <= nodes_count) {
        nodes[node].egress.bytes_per_s = bytes_per_s;
        nodes[node].ingress.bytes_per_s = ingress;
        nodes[node].egress.queue_ns = nodes[node].ingress.queue_ns = (int64_t)(queue_us * 1e3);
        puts("ok");
    } else if (strncmp(line, "count", 5) == 0) tell();
    else puts("unknown command");
    fflush(stdout);
}

/* The commands that have come; 0 at the end of the input. */
static int listen_to_input(void) {
    static char text[65536];
    static size_t filled;
    ssize_t more = read(0, text + filled, sizeof text - 1 - filled);
    if (more <= 0) return 0;
    filled += (size_t)more;
    text[filled] = 0;
    char *line = text, *end;
    while ((end = strchr(line, '\n'))) {
        *end = 0;
        obey(line);
        line = end + 1;
    }
    filled -= (size_t)(line - text);
    memmove(text, line, filled + 1);
    return 1;
}

int main(int count, char **words) {
    if (count != 3 || (nodes_count = atoi(words[1])) < 1 || nodes_count > MOST_NODES ||
        (mtu = atoi(words[2])) < 576 || mtu > 65535) {
        fprintf(stderr, "switch NODES MTU\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    /* Other work on the machine is no part of the network. */
    setpriority(PRIO_PROCESS, 0, -20);
    make_host();
    for (int number = 0; number < nodes_count; number++) make_node(number);
    while (spare_size < MOST_PACKETS) {
        packet_t *packet = malloc(sizeof(packet_t) + mtu);
        if (!packet) fail("memory");
        spare[spare_size++] = packet;
    }
    printf("{\"network\": %d, \"pid\": %d, \"namespaces\": [", network, (int)getpid());
    for (int number = 0; number < nodes_count; number++)
        printf("%s%d", number ? ", " : "", nodes[number].namespace);
    printf("]}\n");
    fflush(stdout);
    struct pollfd ready[MOST_NODES + 2];
    for (int number = 0; number <= nodes_count; number++)
        ready[number] = (struct pollfd){nodes[number].tun, POLLIN, 0};
    ready[nodes_count + 1] = (struct pollfd){0, POLLIN, 0};
    for (;;) {
        struct timespec wait = {0, 0};
        int64_t left_ns = heap_size ? heap[0]->due_ns - now_ns() : 1000000000LL;
        if (left_ns > 0) wait = (struct timespec){left_ns / 1000000000LL, left_ns % 1000000000LL};
        if (ppoll(ready, nodes_count + 2, &wait, NULL) > 0) {
            if (ready[nodes_count + 1].revents && !listen_to_input()) break;
            for (int number = 0; number <= nodes_count; number++)
                if (ready[number].revents & POLLIN) take_from(number);
        }
        give();
    }
    kill_all();
    return 0;
}

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.Address;
import org.jgroups.ChannelException;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;
import org.jgroups.View;
import org.jgroups.blocks.MessageDispatcher;
import org.jgroups.blocks.Request;
import org.jgroups.blocks.RequestOptions;

/**
 * One member of a JGroups group, as `motet bench` drives it. It sends and counts by itself: a message that went through
 * a pipe to Python would measure the pipe. Standard input and output carry a few lines of text only:
 *
 * <pre>
 *   joined                       the channel is connected; others may look for it
 *   ready                        the view is whole
 *   &lt; go BEGIN END             in nanoseconds of the monotonic clock, which is that of Python's time.monotonic
 *   look AT DELIVERED CPU RSS    nanoseconds and bytes
 *   sent N                       of a rate; then it hears what all together have sent
 *   &lt; expect N
 *   missing N
 *   times NS NS ...              of latencies and calls
 *   done
 * </pre>
 *
 * The end of standard input is the end of the member.
 */
public final class JGroupsMember extends ReceiverAdapter {
    private static final int LOOKS = 10;
    private static final int POOL_BYTES = 1 << 20; // of different messages, as the other systems send them
    private static final int SENT_BETWEEN_CLOCKS = 32;
    private static final int TIMES_PER_LINE = 1000;
    private static final long CALL_PATIENCE_MS = 30_000;
    private static final long TIMEOUT_NS = 30_000_000_000L; // for the last messages
    private static final long AFTERMATH_NS = 200_000_000L; // what was sent at the end is still on its way
    private static final int STAMP_BYTES = Long.BYTES;

    private final String kind;
    private final int members;
    private final boolean isSender;
    private final int size;
    private final boolean isDirect;
    private final int rate;
    private final int callers;

    private final JChannel channel;
    private final BlockingQueue<String> words = new LinkedBlockingQueue<>();
    private final CountDownLatch whole = new CountDownLatch(1);
    private final LongAdder delivered = new LongAdder(); // messages of different senders are delivered by different threads
    private final LongAdder lookedAt = new LongAdder(); // bytes: each message is touched, as in the other systems
    private final List<Long> times = new ArrayList<>();
    private volatile long begin = Long.MAX_VALUE;

    private JGroupsMember(String[] arguments) throws ChannelException {
        kind = arguments[1];
        members = Integer.parseInt(arguments[2]);
        isSender = Boolean.parseBoolean(arguments[3]);
        size = Integer.parseInt(arguments[4]);
        isDirect = arguments[5].equals("direct");
        rate = Integer.parseInt(arguments[6]);
        callers = Integer.parseInt(arguments[7]);
        channel = new JChannel(arguments[0]);
    }

    public static void main(String[] arguments) throws Exception {
        JGroupsMember member = new JGroupsMember(arguments);
        Thread listener = new Thread(member::listen);
        listener.setDaemon(true);
        listener.start();
        started(member::run);
    }

    private void run() throws Exception {
        MessageDispatcher dispatcher = kind.equals("calls") ? dispatcher() : null;
        if (dispatcher == null) {
            channel.setReceiver(this);
        }
        channel.connect("bench");
        tell("joined");
        whole.await();
        tell("ready");
        String[] told = words.take().split(" ");
        begin = Long.parseLong(told[1]);
        long end = Long.parseLong(told[2]);
        Thread looking = started(() -> look(begin, end));
        switch (kind) {
            case "rate" -> rate(end, looking);
            case "latency" -> latency(end, looking);
            case "calls" -> calls(dispatcher, end, looking);
            default -> throw new IllegalArgumentException(kind);
        }
        tell("done");
        words.take(); // nothing more is said; the end of the input ends the process
    }

    /** The channel is left without a farewell: the others end at the same moment, and nothing is measured any more. */
    private void listen() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                words.add(line);
            }
        } catch (IOException lost) {
            // whoever started this process is gone
        }
        Runtime.getRuntime().halt(0);
    }

    @Override
    public void viewAccepted(View view) {
        if (view.size() == members) {
            whole.countDown();
        }
    }

    @Override
    public void receive(Message message) {
        lookedAt.add(message.getLength());
        if (rate > 0) {
            take(message, System.nanoTime());
        }
        delivered.increment();
    }

    // As many as go

    private void rate(long end, Thread looking) throws Exception {
        long sent = isSender ? sendUntil(end) : 0;
        looking.join();
        tell("sent " + sent);
        long expected = Long.parseLong(words.take().split(" ")[1]);
        tell("missing " + untilAllCame(expected));
    }

    private long sendUntil(long end) throws Exception {
        byte[][] pool = pool();
        Address to = isDirect ? channel.getView().getMembers().get(0) : null;
        long sent = 0;
        while (System.nanoTime() < end) {
            for (int i = 0; i < SENT_BETWEEN_CLOCKS; i++) {
                channel.send(new Message(to, null, pool[(int) (sent++ % pool.length)]));
            }
        }
        return sent;
    }

    private byte[][] pool() {
        Random random = new Random(size);
        byte[][] pool = new byte[Math.max(1, POOL_BYTES / size)][size];
        for (byte[] message : pool) {
            random.nextBytes(message);
        }
        return pool;
    }

    private long untilAllCame(long expected) throws InterruptedException {
        long before = -1;
        long patience = System.nanoTime() + TIMEOUT_NS;
        while (delivered.sum() < expected && System.nanoTime() < patience) {
            if (delivered.sum() > before) {
                before = delivered.sum();
                patience = System.nanoTime() + TIMEOUT_NS;
            }
            Thread.sleep(20);
        }
        return expected - delivered.sum();
    }

    // How long one takes

    private void latency(long end, Thread looking) throws Exception {
        long due = System.nanoTime();
        while (isSender && due < end) {
            until(due);
            byte[] message = new byte[size];
            ByteBuffer.wrap(message).putLong(System.nanoTime());
            channel.send(new Message(null, null, message));
            due += 1_000_000_000L / rate;
        }
        looking.join();
        until(end + AFTERMATH_NS);
        if (!isSender) { // what counts is the way to others
            tellTimes();
        }
    }

    private void take(Message message, long now) {
        long sent = ByteBuffer.wrap(message.getRawBuffer(), message.getOffset(), STAMP_BYTES).getLong();
        if (sent >= begin) {
            add(now - sent);
        }
    }

    private void add(long time) {
        synchronized (times) {
            times.add(time);
        }
    }

    // Questions and answers

    private MessageDispatcher dispatcher() {
        return new MessageDispatcher(channel, null, this, question -> question.getBuffer());
    }

    private void calls(MessageDispatcher dispatcher, long end, Thread looking) throws Exception {
        List<Thread> asking = new ArrayList<>();
        for (int i = 0; isSender && i < callers; i++) {
            asking.add(started(() -> ask(dispatcher, end)));
        }
        for (Thread thread : asking) {
            thread.join();
        }
        looking.join();
        tellTimes();
    }

    private void ask(MessageDispatcher dispatcher, long end) throws Exception {
        Address to = channel.getView().getMembers().get(0);
        RequestOptions options = new RequestOptions(Request.GET_FIRST, CALL_PATIENCE_MS);
        byte[] question = new byte[size];
        long asked = System.nanoTime();
        while (asked < end) {
            dispatcher.sendMessage(new Message(to, null, question), options);
            long answered = System.nanoTime();
            delivered.increment();
            if (asked >= begin) {
                add(answered - asked);
            }
            asked = answered;
        }
    }

    // What is told

    private void look(long from, long to) throws Exception {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        for (int i = 0; i <= LOOKS; i++) {
            until(from + (to - from) * i / LOOKS);
            long rss = residentBytes();
            tell("look " + System.nanoTime() + " " + delivered.sum() + " " + system.getProcessCpuTime() + " " + rss);
        }
    }

    private static long residentBytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
            }
        }
        return 0;
    }

    private void tellTimes() {
        synchronized (times) {
            for (int i = 0; i < times.size(); i += TIMES_PER_LINE) {
                StringBuilder line = new StringBuilder("times");
                times.subList(i, Math.min(times.size(), i + TIMES_PER_LINE)).forEach(time -> line.append(' ').append(time));
                tell(line.toString());
            }
        }
    }

    private static synchronized void tell(String line) {
        System.out.println(line);
    }

    // Threads and time

    private interface Work {
        void run() throws Exception;
    }

    /** What fails in a thread ends the process, and so the measurement; its log says why. */
    private static Thread started(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception failure) {
                failure.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        thread.start();
        return thread;
    }

    private static void until(long due) {
        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}

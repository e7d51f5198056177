import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A WorkerInfo: its fields but the id, as they were written, and what the text of a roll has of them. */
class WorkerInfo {
    private byte[] rest = Client.NOTHING;
    private final String[] texts = {"", "", "", ""}; // workerIP, nodeIP, rackName, dataCenterName
    private int port, id = -1;

    /** Reads one; one that cannot be read, or breaks a limit, has nothing. */
    static WorkerInfo read(byte[] body) {
        WorkerInfo info = new WorkerInfo();
        try {
            if (body.length <= 16_384) {
                info.parse(body);
                return info;
            }
        } catch (RuntimeException e) {
            // as if it were not there
        }
        return new WorkerInfo();
    }

    static byte[] write(String ip, int port, Integer k) {
        WorkerInfo info = new WorkerInfo();
        byte[] at = ip.getBytes(StandardCharsets.UTF_8);
        info.rest = join(List.of(new byte[] {18}, varint(at.length), at, new byte[] {24}, varint(port),
                new byte[] {34, 0}));
        return k == null ? info.rest : info.withId(k);
    }

    byte[] withId(int k) {
        return join(List.of(new byte[] {8}, varint(k), rest));
    }

    /** A line of the text of a roll. */
    String line(int k) {
        if ((texts[0] + texts[1] + texts[2] + texts[3]).matches("(?s).*[,;\\s].*")) {
            return "\n,0," + k + ";null,null,null";
        }
        StringBuilder b = new StringBuilder("\n" + texts[0] + "," + port + "," + k);
        for (int i = 1; i < 4; i++) {
            b.append(i == 1 ? ";" : ",").append(texts[i].isEmpty() ? "null" : texts[i]);
        }
        return b.toString();
    }

    private void parse(byte[] body) {
        List<byte[]> kept = new ArrayList<>();
        ByteBuffer in = ByteBuffer.wrap(body);
        while (in.hasRemaining()) {
            int from = in.position(), tag = (int) number(in);
            byte[] value = tag % 8 == 2 ? bytes(in) : null;
            long n = tag % 8 == 0 ? number(in) : 0;
            if (tag < 8 || tag % 8 > 2 && tag % 8 != 5) {
                throw new IllegalArgumentException("no field");
            } else if (tag % 4 == 1) { // of a kind that muster does not write: 8 or 4 bytes
                in.position(in.position() + (tag % 8 == 1 ? 8 : 4));
            }
            switch (tag) {
                case 8 -> id = (int) n;
                case 18 -> texts[0] = text(value);
                case 24 -> port = port(n);
                case 34 -> parseNode(value);
                case 50 -> parsePort(value);
                case 58 -> text(value);
                default -> { }
            }
            if (tag != 8) {
                kept.add(Arrays.copyOfRange(body, from, in.position()));
            }
        }
        rest = join(kept);
    }

    private void parseNode(byte[] body) {
        for (ByteBuffer in = ByteBuffer.wrap(body); in.hasRemaining();) {
            int tag = (int) number(in);
            String value = text(bytes(in));
            if (tag == 10 || tag == 18 || tag == 26) {
                texts[tag / 8] = value;
            }
        }
    }

    private static void parsePort(byte[] body) {
        for (ByteBuffer in = ByteBuffer.wrap(body); in.hasRemaining();) {
            if (number(in) % 8 == 2) {
                text(bytes(in));
            } else {
                port(number(in));
            }
        }
    }

    private static long number(ByteBuffer in) {
        long n = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            byte b = in.get();
            n |= (b & 127L) << shift;
            if (b >= 0) {
                return n;
            }
        }
        throw new IllegalArgumentException("a number is too long");
    }

    private static byte[] bytes(ByteBuffer in) {
        long n = number(in);
        if (n < 0 || n > in.remaining()) {
            throw new IllegalArgumentException("a field is cut");
        }
        byte[] b = new byte[(int) n];
        in.get(b);
        return b;
    }

    private static String text(byte[] body) {
        String text = Json.utf8(body);
        if (text == null || !printable(text)) {
            throw new IllegalArgumentException("a text is not printable");
        }
        return text;
    }

    private static int port(long n) {
        if (n < 0 || n > 65_535) {
            throw new IllegalArgumentException("no port");
        }
        return (int) n;
    }

    private static byte[] varint(int n) {
        byte[] b = new byte[5];
        int size = 0;
        for (; n > 127; n >>= 7) {
            b[size++] = (byte) (n & 127 | 128);
        }
        b[size++] = (byte) n;
        return Arrays.copyOf(b, size);
    }

    static byte[] join(List<byte[]> parts) {
        ByteBuffer b = ByteBuffer.allocate(parts.stream().mapToInt(part -> part.length).sum());
        parts.forEach(b::put);
        return b.array();
    }

    /** The addresses in a roll of n rows, by id; null if it has not n rows that can be read. */
    static Map<Integer, String> readRoll(byte[] body, int n) {
        Map<Integer, String> all = new TreeMap<>();
        int rows = 0;
        try {
            if (body.length > 0 && body[0] != 0) {
                for (String line : Json.utf8(body).substring(1).split("\n")) {
                    String[] parts = line.split("[,;]");
                    rows++;
                    all.put(Integer.parseInt(parts[2]), parts[0] + ":" + port(Long.parseLong(parts[1])));
                }
                return rows == n && all.size() == n ? all : null;
            }
            for (ByteBuffer in = ByteBuffer.wrap(body); in.hasRemaining(); rows++) {
                byte[] row = new byte[in.getInt()];
                in.get(row);
                WorkerInfo info = new WorkerInfo();
                info.parse(row);
                all.put(info.id, info.texts[0] + ":" + info.port);
            }
        } catch (RuntimeException e) {
            return null;
        }
        return rows == n && all.size() == n ? all : null;
    }

    /** Whether a text, such as an identity or an address, can be written. */
    static boolean printable(String text) {
        return text.codePointCount(0, text.length()) <= 255 && text.codePoints()
                .noneMatch(c -> Character.isISOControl(c) || !Character.isDefined(c)
                        || c >= 0xd800 && c <= 0xf8ff || c >= 0xfff0 && c <= 0xffff);
    }
}

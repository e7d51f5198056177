import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A JSON object whose values are kept as they were written, so that what is not known is not changed. */
class Json {
    private final Map<String, String> values = new LinkedHashMap<>();
    private String text;
    private int at;

    Json(String text) {
        this.text = text;
        expect('{');
        for (boolean first = true; !skip('}'); first = false) {
            if (!first) {
                expect(',');
            }
            space();
            int from = at;
            string();
            String key = unquote(text.substring(from, at));
            expect(':');
            space();
            from = at;
            value(0);
            values.put(key, text.substring(from, at));
        }
        space();
        if (at != text.length()) {
            throw wrong();
        }
        this.text = null;
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("no JSON at character " + at);
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private boolean skip(char c) {
        space();
        boolean is = at < text.length() && text.charAt(at) == c;
        at += is ? 1 : 0;
        return is;
    }

    private void expect(char c) {
        if (!skip(c)) {
            throw wrong();
        }
    }

    private void string() {
        expect('"');
        while (at < text.length() && text.charAt(at) != '"') {
            if (text.charAt(at) == '\\' && text.startsWith("u", ++at)
                    && !text.substring(at + 1, Math.min(text.length(), at + 5)).matches("[0-9a-fA-F]{4}")) {
                throw wrong();
            }
            at++;
        }
        if (++at > text.length()) {
            throw wrong();
        }
    }

    private void value(int depth) {
        space();
        if (at >= text.length() || depth > 100) {
            throw wrong();
        }
        char open = text.charAt(at);
        if (open == '"') {
            string();
        } else if (open == '{' || open == '[') {
            at++;
            for (boolean first = true; !skip(open == '{' ? '}' : ']'); first = false) {
                if (!first) {
                    expect(',');
                }
                if (open == '{') {
                    space();
                    string();
                    expect(':');
                }
                value(depth + 1);
            }
        } else {
            int from = at;
            while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            if (!text.substring(from, at).matches("true|false|null|-?\\d+(\\.\\d+)?([eE][-+]?\\d+)?")) {
                throw wrong();
            }
        }
    }

    private static String unquote(String quoted) {
        StringBuilder b = new StringBuilder();
        for (int i = 1; i < quoted.length() - 1; i++) {
            char c = quoted.charAt(i);
            if (c == '\\') {
                c = quoted.charAt(++i);
                int plain = "bfnrt".indexOf(c);
                if (c == 'u') {
                    c = (char) Integer.parseInt(quoted.substring(i + 1, i + 5), 16);
                    i += 4;
                } else if (plain >= 0) {
                    c = "\b\f\n\r\t".charAt(plain);
                }
            }
            b.append(c);
        }
        return b.toString();
    }

    boolean has(String key) {
        return values.containsKey(key) && !values.get(key).equals("null");
    }

    String raw(String key) {
        return values.getOrDefault(key, "null");
    }

    /** A text; empty if it is not there, or none. */
    String text(String key) {
        return raw(key).startsWith("\"") ? unquote(raw(key)) : "";
    }

    String textOr(String key, String other) {
        return has(key) ? text(key) : other;
    }

    long number(String key, long other, long least, long most) throws Client.Ended {
        long n = raw(key).matches("-?\\d{1,18}") ? Long.parseLong(raw(key)) : other;
        if (n < least || n > most || has(key) && !raw(key).matches("-?\\d{1,18}")) {
            throw new Client.Ended(Client.UNREADABLE, key + " is " + raw(key) + ", not " + least + " to " + most);
        }
        return n;
    }

    /** An object; without anything in it if it is not there. */
    Json object(String key) throws Client.Ended {
        return parse((has(key) ? raw(key) : "{}").getBytes(StandardCharsets.UTF_8), key);
    }

    /** A list of texts. */
    List<String> list(String key) throws Client.Ended {
        List<String> all = new ArrayList<>();
        if (has(key)) {
            Json list = new Json("{}");
            list.text = raw(key);
            list.at = 0;
            try {
                list.expect('[');
                while (!list.skip(']')) {
                    if (!all.isEmpty()) {
                        list.expect(',');
                    }
                    list.space();
                    int from = list.at;
                    list.string();
                    all.add(unquote(list.text.substring(from, list.at)));
                }
            } catch (IllegalArgumentException e) {
                throw new Client.Ended(Client.UNREADABLE, key + " is no list of texts");
            }
        }
        return all;
    }

    /** The same with another value, which is JSON. */
    Json with(String key, String value) {
        Json other = new Json("{}");
        other.values.putAll(values);
        other.values.put(key, value);
        return other;
    }

    Json without(String key) {
        Json other = with(key, "null");
        other.values.remove(key);
        return other;
    }

    @Override
    public String toString() {
        StringBuilder b = new StringBuilder();
        values.forEach((key, value) ->
                b.append(b.length() == 0 ? "" : ",").append(quote(key)).append(':').append(value));
        return "{" + b + "}";
    }

    byte[] bytes() {
        return toString().getBytes(StandardCharsets.UTF_8);
    }

    /** Text; null if it is no UTF-8. */
    static String utf8(byte[] body) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(body)).toString();
        } catch (CharacterCodingException e) {
            return null;
        }
    }

    static String quote(String text) {
        StringBuilder b = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                b.append('\\').append(c);
            } else {
                b.append(c < ' ' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
            }
        }
        return b.append('"').toString();
    }

    static Json parse(byte[] body, String what) throws Client.Ended {
        String text = body.length > 262_144 ? null : utf8(body);
        try {
            return new Json(text == null ? "" : text);
        } catch (IllegalArgumentException e) {
            throw new Client.Ended(Client.UNREADABLE, what + " cannot be read: " + e.getMessage());
        }
    }
}

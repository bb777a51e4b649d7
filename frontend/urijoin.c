/* urijoin.c - see urijoin.h. */
#include "frontend/urijoin.h"

#include <string.h>

struct urijoin_part {
	const char *s;
	size_t len;
	bool is_there;
};

struct urijoin_parts {
	struct urijoin_part scheme, authority, path, query;
};

static struct urijoin_parts urijoin_split(const char *s)
{
	struct urijoin_parts p = {0};
	size_t n = strcspn(s, ":/?#");

	if (s[n] == ':' && n > 0) {
		p.scheme = (struct urijoin_part){s, n, true};
		s += n + 1;
	}
	if (s[0] == '/' && s[1] == '/') {
		s += 2;
		p.authority = (struct urijoin_part){s, strcspn(s, "/?#"), true};
		s += p.authority.len;
	}
	p.path = (struct urijoin_part){s, strcspn(s, "?#"), true};
	s += p.path.len;
	if (*s == '?') p.query = (struct urijoin_part){s + 1, strcspn(s + 1, "#"), true};
	return p;
}

/* Appends a path without "." and ".." segments; they never go above `from`, where the path begins in out. */
static void urijoin_path(struct strbuf *out, size_t from, const char *s, size_t len)
{
	const char *end = s + len;

	while (s < end) {
		size_t n = 0;

		while (s + n < end && (n == 0 || s[n] != '/')) n++; /* a segment with the slash before it */
		if ((n == 2 && memcmp(s, "/.", 2) == 0) || (n == 3 && memcmp(s, "/..", 3) == 0)) {
			if (n == 3)
				while (out->len > from && out->data[--out->len] != '/') continue;
			if (s + n == end) strbuf_putc(out, '/');
		} else {
			strbuf_append(out, s, n);
		}
		s += n;
	}
	if (out->data) out->data[out->len] = 0;
}

static void urijoin_put(struct strbuf *out, const char *before, struct urijoin_part part, const char *behind)
{
	if (!part.is_there) return;
	strbuf_puts(out, before);
	strbuf_append(out, part.s, part.len);
	strbuf_puts(out, behind);
}

void urijoin(struct strbuf *out, const char *base, const char *ref)
{
	struct urijoin_parts b = urijoin_split(base), r = urijoin_split(ref);
	struct urijoin_part query = r.query, dir = {0};

	if (r.scheme.is_there) {
		b = r;
	} else if (r.authority.is_there) {
		b.authority = r.authority;
		b.path = r.path;
	} else if (r.path.len == 0) {
		if (!query.is_there) query = b.query;
	} else if (r.path.s[0] == '/') {
		b.path = r.path;
	} else {
		/* What the base's path has up to its last slash. */
		dir = b.path;
		while (dir.len && dir.s[dir.len - 1] != '/') dir.len--;
		if (!dir.len && b.authority.is_there) dir = (struct urijoin_part){"/", 1, true};
		b.path = r.path;
	}
	urijoin_put(out, "", b.scheme, ":");
	urijoin_put(out, "//", b.authority, "");
	{
		struct strbuf path;
		size_t from = out->len;

		strbuf_init(&path, out->len_max);
		strbuf_append(&path, dir.s ? dir.s : "", dir.len);
		strbuf_append(&path, b.path.s, b.path.len);
		urijoin_path(out, from, path.data ? path.data : "", path.len);
		strbuf_release(&path);
	}
	urijoin_put(out, "?", query, "");
}

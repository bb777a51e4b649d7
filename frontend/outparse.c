/* outparse.c - see outparse.h. Being built: everything is text. */
#include "frontend/outparse.h"

#include "common/mem.h"

#include <stdlib.h>

struct outparse {
	struct outparse_config cfg;
};

struct outparse *outparse_new(const struct outparse_config *cfg)
{
	struct outparse *p = mem_new(struct outparse);

	p->cfg = *cfg;
	p->cfg.named = NULL;
	return p;
}

void outparse_free(struct outparse *p)
{
	free(p);
}

void outparse_push(struct outparse *p, const char *s, size_t len, struct pieces *out)
{
	pieces_text(out, s, len);
}

bool outparse_special(struct outparse *p, const char *name, size_t len, struct pieces *out)
{
	return false;
}

void outparse_finish(struct outparse *p, struct pieces *out)
{
}

enum outparse_tools outparse_tools_of(const char *template_text, size_t len)
{
	return OUTPARSE_TOOLS_NONE;
}

enum outparse_reasoning outparse_reasoning_of(const char *template_text, size_t len)
{
	return OUTPARSE_REASONING_NONE;
}

bool outparse_ends_in_reasoning(const char *prompt, size_t len)
{
	return false;
}

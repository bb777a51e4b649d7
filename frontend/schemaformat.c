/* schemaformat.c - formats of strings, as expressions. See schemac_impl.h.
 *
 * What is written here is a part of what the format allows, never more: an output is valid also for those who check formats. A format
 * that is not here is an annotation, as the standard has it. */
#include "frontend/schemac_impl.h"

#include <string.h>
#include <xxhash.h>

#define DAYS_28 "(?:0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                                                        \
	"(?:[12][0-9]{3}-(?:(?:0[1-9]|1[0-2])-" DAYS_28 "|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"       \
	"|(?:[12][0-9](?:0[48]|[2468][048]|[13579][26])|(?:16|20|24|28)00)-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
#define TIME CLOCK "(?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
/* Two hyphens in a row announce an encoded name, which may be wrong; at most 253 characters in all. */
#define HOST_LABEL "[a-z0-9]{1,12}(?:-[a-z0-9]{1,12}){0,3}"
#define HOST HOST_LABEL "(?:\\." HOST_LABEL "){0,3}"
#define HOST_DOTTED HOST_LABEL "(?:\\." HOST_LABEL "){0,3}\\.[a-z]{2,10}"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 "(?:" BYTE "\\.){3}" BYTE
#define H16 "[0-9a-fA-F]{1,4}"
#define IPV6                                                                                                                 \
	"(?:(?:" H16 ":){7}" H16 "|::(?:" H16 "(?::" H16 "){0,5})?|" H16 "::(?:" H16 "(?::" H16 "){0,4})?|" H16 ":" H16      \
	"::(?:" H16 "(?::" H16 "){0,3})?|" H16 "(?::" H16 "){2}::(?:" H16 "(?::" H16 "){0,2})?)"
#define PATH_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI_TAIL "(?:/" PATH_CHAR "*)*(?:\\?(?:" PATH_CHAR "|[/?])*)?(?:#(?:" PATH_CHAR "|[/?])*)?"
#define URI "https?://" HOST_DOTTED "(?::[1-9][0-9]{0,3})?" URI_TAIL
#define DURATION_TIME "T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)"
#define DURATION_DATE "(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"

static const struct {
	const char *name, *pattern;
} schemaformat_known[] = {
	{"date", DATE},
	{"time", TIME},
	{"date-time", DATE "T" TIME},
	{"duration", "P(?:[0-9]{1,4}W|" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME ")"},
	{"email", "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,16}){0,2}@" HOST_DOTTED},
	{"idn-email", "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,16}){0,2}@" HOST_DOTTED},
	{"hostname", HOST},
	{"host-name", HOST},   /* draft 3 */
	{"idn-hostname", HOST},
	{"ipv4", IPV4},
	{"ip-address", IPV4}, /* draft 3 */
	{"ipv6", IPV6},
	{"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
	{"uri", URI},
	{"iri", URI},
	{"uri-reference", "(?:" URI "|/(?:" PATH_CHAR "+" URI_TAIL ")?)"},
	{"iri-reference", "(?:" URI "|/(?:" PATH_CHAR "+" URI_TAIL ")?)"},
	{"uri-template", URI},
	{"json-pointer", "(?:/(?:[A-Za-z0-9_$-]|~[01])*)*"},
	{"relative-json-pointer", "(?:0|[1-9]{1,3})(?:#|(?:/(?:[A-Za-z0-9_$-]|~[01])*)*)"},
	{"regex", "[A-Za-z0-9_ -]*"},
	{"color", "#[0-9a-fA-F]{6}"},
	{"\001base64", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"}, /* "contentEncoding" */
};

const struct dfa *schemaformat(struct schemac *c, const char *name)
{
	uint64_t h = XXH3_64bits(name, strlen(name));
	const struct dfa *known = map_get(&c->formats, h);
	const char *pattern = NULL;
	size_t i;

	if (known) return known;
	for (i = 0; i < ARRAY_LEN(schemaformat_known); i++)
		if (strcmp(schemaformat_known[i].name, name) == 0) pattern = schemaformat_known[i].pattern;
	/* Draft 3 has no zones. */
	if (strcmp(name, "time") == 0 && c->doc.draft == SCHEMADOC_3) pattern = CLOCK;
	if (!pattern) return NULL;
	known = dfaregex_pattern(c->g, pattern, strlen(pattern), false, false);
	if (known) map_put(&c->formats, h, (void *)known);
	return known;
}
